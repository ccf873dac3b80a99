"""What an environment is: two pure functions, a horizon, and the spaces they act on.

Optional members:

    default_constraint    the constraint that it is trained under if the caller names none; of several
                          costs, a list with one for each
    largest_step_cost     the largest cost of one step, from which certificates bound means and tail means;
                          of several costs, a tuple
    finite_tables()       its states, transitions, rewards and costs as `FiniteTables`, for exact optima
    drawing               how to draw it (docs/rendering.md): a function, or "module:function"

Cost, termination and truncation are fields of the state, never keys of an `info` dictionary: a
tail-risk constraint is about the cost, and advantage estimation needs to know whether an episode
ended or was merely cut off.
"""

from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, NamedTuple, Protocol, runtime_checkable

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from canary.constraints import Constraint
from canary.errors import CanaryError


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

    `reward` and `cost` belong to the step that led here (0 after a reset). `cost` is a number, or a
    vector if the environment has several costs. `time` counts the steps of this episode. An episode
    is over when `terminated` (it ended by itself) or `truncated` (it was cut off at the horizon)
    holds.
    """

    _: KW_ONLY  # so that a field that is left out is named
    inner: PyTree
    observation: Float[Array, "*batch obs"]
    reward: Float[Array, "*batch"]
    cost: Float[Array, "..."]
    terminated: Bool[Array, "*batch"]
    truncated: Bool[Array, "*batch"]
    time: Int[Array, "*batch"]


def first_state(inner: PyTree, observation: Float[Array, "obs"]) -> EnvironmentState:
    """The state of one environment right after a reset."""
    return EnvironmentState(
        inner=inner,
        observation=observation,
        reward=jnp.zeros(()),
        cost=jnp.zeros(()),
        terminated=jnp.zeros((), bool),
        truncated=jnp.zeros((), bool),
        time=jnp.zeros((), jnp.int32),
    )


def check_count(owner: str, name: str, value: Any) -> None:
    """Raise a sentence unless a setting is a positive whole number."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
        raise CanaryError(f"The {name} of {owner} must be a positive whole number, not {value!r}.")


@runtime_checkable
class Environment(Protocol):
    """A single environment; callers `vmap` it. Implementations are frozen dataclasses whose fields
    are their settings.

    `step` must not be called on a finished state, and `reset` draws a fresh initial state from its
    key every time.
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
        """Whether observations have physical units and should be standardised before they reach a
        network."""
        ...

    def reset(self, key: PRNGKeyArray) -> EnvironmentState: ...

    def step(
        self, state: EnvironmentState, action: Array, key: PRNGKeyArray
    ) -> EnvironmentState: ...


class FiniteTables(NamedTuple):
    """A finite environment as numbers; its observation of a state is one of the states' unit
    vectors."""

    transition: Float[np.ndarray, "state action state"]
    reward: Float[np.ndarray, "state action state"]
    cost: Float[np.ndarray, "state action state"]
    terminal: Bool[np.ndarray, "state"]
    initial: Float[np.ndarray, "state"]


def default_constraint(environment: Environment) -> Constraint | Sequence[Constraint] | None:
    return getattr(environment, "default_constraint", None)


def largest_step_cost(environment: Environment) -> float | None:
    return getattr(environment, "largest_step_cost", None)


def finite_tables(environment: Environment) -> FiniteTables | None:
    tables = getattr(environment, "finite_tables", None)
    return None if tables is None else tables()


def stated_drawing(environment: Environment) -> str | Callable[..., Any] | None:
    return getattr(environment, "drawing", None)


def policy_interface(environment: Environment) -> dict[str, Any] | None:
    """How to convert between the policy's and the environment's observations and actions, as plain
    data; None if they are the same."""
    return getattr(environment, "policy_interface", None)


def close(environment: Environment) -> None:
    """End the worker processes of an environment, if it has any."""
    getattr(environment, "close", lambda: None)()
