"""What an environment is: two pure functions, a horizon, and the spaces they act on.

Cost, termination and truncation are fields of the state, never keys of an `info` dictionary: a tail-risk constraint is
about the cost, and advantage estimation needs to know whether an episode ended or was merely cut off.
"""

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import equinox as eqx
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree


@dataclass(frozen=True)
class Discrete:
    """Actions 0, ..., count - 1, given as an integer."""

    count: int


@dataclass(frozen=True)
class Continuous:
    """Real vectors of the given size; the environment clips each component to [-1, 1]."""

    size: int


ActionSpace = Discrete | Continuous


class EnvironmentState(eqx.Module):
    """One environment after a reset or a step.

    `reward` and `cost` belong to the step that led here (0 after a reset). `time` counts the steps of this episode.
    An episode is over when `terminated` (it ended by itself) or `truncated` (it was cut off at the horizon) holds.
    """

    inner: PyTree
    observation: Float[Array, "obs"]
    reward: Float[Array, ""]
    cost: Float[Array, ""]
    terminated: Bool[Array, ""]
    truncated: Bool[Array, ""]
    time: Int[Array, ""]


@runtime_checkable
class Environment(Protocol):
    """A single environment; callers `vmap` it. Implementations are frozen dataclasses whose fields are their settings.

    `step` must not be called on a finished state, and `reset` draws a fresh initial state from its key every time.
    """

    @property
    def horizon(self) -> int:
        """Episodes are truncated after this many steps."""
        ...

    @property
    def observation_size(self) -> int: ...

    @property
    def action_space(self) -> ActionSpace: ...

    @property
    def normalise_observation(self) -> bool:
        """Whether observations have physical units and should be standardised before they reach a network."""
        ...

    def reset(self, key: PRNGKeyArray) -> EnvironmentState: ...

    def step(self, state: EnvironmentState, action: Array, key: PRNGKeyArray) -> EnvironmentState: ...
