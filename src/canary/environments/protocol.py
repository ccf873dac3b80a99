"""An environment: two pure functions, a horizon, and spaces of observations and actions.

Optional members:

    default_constraint    the constraint of training if the caller names none; several costs: a list
    largest_step_cost     the largest cost of one step, with which certificates bound means and tail
                          means; several costs: a tuple
    finite_tables()       its states, transitions, rewards and costs as `FiniteTables`, for exact optima
    policy_interface      conversion of a Gymnasium environment's observations and actions to the
                          policy's, as plain data
    drawing               how to draw it (docs/rendering.md): a function, or "module:function"
    settings()            its settings as JSON data, if it is not a dataclass
    with_settings(dict)   the same environment with some settings changed

Cost, termination and truncation are fields of the state, not keys of an `info` dictionary, because
constraints need the cost, and advantage estimation must distinguish termination from truncation.
"""

import dataclasses
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass
from typing import Any, NamedTuple, Protocol, cast, runtime_checkable

import equinox as eqx
import jax
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

    `reward` and `cost` are those of the last step (0 after a reset). `cost` is a number, or a
    vector if the environment has several costs. `time` counts the steps of this episode. An episode
    is over if it `terminated` (ended by itself) or is `truncated` (cut off at the horizon).
    """

    _: KW_ONLY  # so that an error names a missing field
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


@runtime_checkable
class Environment(Protocol):
    """A single environment; callers `vmap` it. Implementations are frozen dataclasses whose fields
    are their settings.

    `step` must not be called on a finished state. `reset` draws a fresh initial state from its key.
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
        """Whether observations have physical units, so that networks need them standardised."""
        ...

    def reset(self, key: PRNGKeyArray) -> EnvironmentState: ...

    def step(
        self, state: EnvironmentState, action: Array, key: PRNGKeyArray
    ) -> EnvironmentState: ...


class FiniteTables(NamedTuple):
    """A finite environment as tables; the observation of a state is its unit vector."""

    transition: Float[np.ndarray, "state action state"]
    reward: Float[np.ndarray, "state action state"]
    cost: Float[np.ndarray, "state action state"]
    terminal: Bool[np.ndarray, "state"]
    initial: Float[np.ndarray, "state"]


def default_constraint(environment: Environment) -> Constraint | Sequence[Constraint] | None:
    return getattr(environment, "default_constraint", None)


def name_of_environment(environment: Environment) -> str:
    """The environment's member `name`, or the name of its class."""
    own = getattr(environment, "name", None)
    return own if isinstance(own, str) else type(environment).__name__


def settings_of(environment: Environment) -> dict[str, Any]:
    """The fields of a dataclass, or the result of a method `settings()`, as JSON data."""
    name = type(environment).__name__
    if callable(own := getattr(environment, "settings", None)):
        found: Any = own()
    elif dataclasses.is_dataclass(environment):
        found = dataclasses.asdict(cast(Any, environment))
    else:
        raise CanaryError(
            f"{name} must be a dataclass (@dataclass(frozen=True)), whose fields are its settings, "
            "or have a method settings() that returns them."
        )
    for setting, value in found.items():
        try:
            json.dumps(value, allow_nan=False)
        except (TypeError, ValueError):
            raise CanaryError(
                f"The setting {setting} of {name} is {value!r:.40}, which JSON cannot hold; use "
                "numbers, texts, true or false, and lists or tables of them."
            ) from None
    return json.loads(json.dumps(found))


def with_settings(environment: Environment, changes: Mapping[str, Any]) -> Environment:
    """The same environment with some settings changed."""
    if callable(own := getattr(environment, "with_settings", None)):
        return own(changes)
    return dataclasses.replace(cast(Any, environment), **changes)


@contextmanager
def explain_failures(environment: Environment) -> Iterator[None]:
    """Raise a `CanaryError` if a Python callback of the environment (`jax.pure_callback`) fails in
    a program. The body must wait for the results of the program."""
    try:
        yield
    except (jax.errors.JaxRuntimeError, ValueError) as error:  # the latter from a repeated call
        text = str(error)
        if "error calling callback" not in text and "callback failed" not in text.lower():
            raise
        lines = text.rpartition("Traceback (most recent call last):")[2].splitlines()
        what = next((line for line in lines if line[:1].strip()), lines[0]).rstrip(".")
        name = name_of_environment(environment)
        raise CanaryError(f"A Python callback of {name} failed: {what[:300]}.") from error
