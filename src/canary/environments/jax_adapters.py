"""JAX environments of other packages, inside the compiled program: gymnax, and those with Brax's
state (Brax, MuJoCo Playground, CRAX).

Canary cuts episodes at its horizon and resets by itself, so pass bare environments, without the
package's episode and auto-reset wrappers.
"""

import dataclasses
import importlib
import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from canary.environments.protocol import (
    ActionSpace,
    Continuous,
    Discrete,
    EnvironmentState,
    first_state,
)
from canary.errors import CanaryError
from canary.host.recipe import INFO, Cost, cost_reader
from canary.host.references import describe, label_of, name_of
from canary.values import Count, convert

METRICS = "metrics:"
EPISODE_LENGTH = 1000  # steps; what the trainers of Brax and its relatives use
NEVER = 2**30  # steps
BRAX_MAKERS = {
    "brax": ("brax.envs", "get_environment"),
    "crax": ("crax.envs", "get_environment"),
    "playground": ("mujoco_playground", "registry.load"),
}


@dataclass(frozen=True, eq=False)
class Adapted:
    """An environment of another package, and how it was made."""

    name: str
    foreign: Any
    cost: str | Cost
    horizon: int
    arguments: dict[str, Any]

    packages: ClassVar[tuple[str, ...]]
    """The prefixes of names that another process can make it by."""

    def __post_init__(self):
        if self.horizon is None:
            raise CanaryError(f"{self.name} states no time limit; set one with horizon=...")
        horizon = convert(Count, self.horizon, f"the horizon of {self.name}")
        object.__setattr__(self, "horizon", horizon)
        cost = f"{INFO}cost" if self.cost == "info" else self.cost
        object.__setattr__(self, "cost", cost)
        if not (isinstance(cost, str) and cost.startswith(METRICS)):
            cost_reader(cost)  # raises a sentence

    def _start(self, key: PRNGKeyArray) -> tuple[Any, Any]:
        """The package's state after a reset, and its observation."""
        raise NotImplementedError

    def _move(self, inner: Any, action: Array, key: PRNGKeyArray) -> tuple[Any, ...]:
        """After a step: state, observation, reward, terminated, whether the package cuts the
        episode, and where the cost may be found."""
        raise NotImplementedError

    def _see(self, seen: Any) -> Float[Array, "obs"]:
        """The observation as one row."""
        raise NotImplementedError

    def _act(self, action: Array) -> Array:
        """The package's action for one of ours."""
        raise NotImplementedError

    def _read_cost(self, before: Array, action: Array, after: Array, found: Any) -> Any:
        return cost_reader(self.cost)(before, action, after, found)

    @cached_property
    def observation_size(self) -> int:
        seen = jax.eval_shape(lambda key: self._see(self._start(key)[1]), jax.random.key(0))
        return seen.shape[0]

    @cached_property
    def _template(self) -> Any:
        """Shapes and types of the package's state after a step."""

        def play(key: PRNGKeyArray) -> Any:
            space = self.action_space
            action = jnp.zeros(space.size) if isinstance(space, Continuous) else jnp.int32(0)
            return self._move(self._start(key)[0], self._act(action), key)[0]

        return jax.eval_shape(play, jax.random.key(0))

    def _typed(self, inner: Any) -> Any:
        """Packages mix Python numbers and arrays in what reset returns."""
        if jax.tree.structure(inner) != jax.tree.structure(self._template):
            raise CanaryError(
                f"reset and step of {self.name} return states of different structure."
            )
        return jax.tree.map(lambda one, to: jnp.asarray(one, to.dtype), inner, self._template)

    @property
    def action_space(self) -> ActionSpace:
        raise NotImplementedError

    def reset(self, key: PRNGKeyArray) -> EnvironmentState:
        inner, seen = self._start(key)
        return first_state(self._typed(inner), self._see(seen))

    def step(self, state: EnvironmentState, action: Array, key: PRNGKeyArray) -> EnvironmentState:
        move = self._act(action)
        inner, seen, reward, terminated, cut, found = self._move(state.inner, move, key)
        observation, time = self._see(seen), state.time + 1
        terminated = jnp.asarray(terminated, bool).reshape(())
        cost = self._read_cost(state.observation, move, observation, found)
        return EnvironmentState(
            inner=self._typed(inner),
            observation=observation,
            reward=jnp.asarray(reward, jnp.float32).reshape(()),
            cost=jnp.asarray(cost, jnp.float32).reshape(()),
            terminated=terminated,
            truncated=(jnp.asarray(cut, bool) | (time >= self.horizon)) & ~terminated,
            time=time,
        )

    def settings(self) -> dict[str, Any]:
        return {**self.arguments, "horizon": self.horizon, "cost": label_of(self.cost)}

    def source(self) -> dict[str, Any] | None:
        """How another process makes it: name, arguments and cost; None if it cannot."""
        cost = self.cost if isinstance(self.cost, str) else name_of(self.cost)
        if cost is None or self.name.partition(":")[0] not in self.packages:
            return None
        arguments = {**self.arguments, "horizon": self.horizon}
        return {"name": self.name, "arguments": arguments, "cost": cost}


class GymnaxEnvironment(Adapted):
    """Made by `from_gymnax`. Before 1.0 `done` of `step_env` includes the time limit, so
    `is_terminal` is asked without a limit; from 1.0 on `done` means terminated."""

    packages = ("gymnax",)

    @cached_property
    def params(self) -> Any:
        return self.foreign.default_params.replace(**self.arguments)

    @cached_property
    def action_space(self) -> ActionSpace:
        space = self.foreign.action_space(self.params)
        if hasattr(space, "n"):
            return Discrete(int(space.n))
        bounds = getattr(space, "low", np.inf), getattr(space, "high", np.inf)
        if not all(np.isfinite(bound).all() for bound in bounds):
            raise CanaryError(
                f"The action space of {self.name} is {space}; canary acts in Discrete spaces and in "
                "Box spaces with finite bounds."
            )
        return Continuous(int(np.prod(space.shape)))

    @property
    def _categories(self) -> int | None:
        """The number of observations, if they are counted."""
        return getattr(self.foreign.observation_space(self.params), "n", None)

    @property
    def normalise_observation(self) -> bool:
        return self._categories is None

    def with_settings(self, changes: Mapping[str, Any]) -> "GymnaxEnvironment":
        given: dict[str, Any] = {"horizon": self.horizon, **self.arguments, **changes}
        made = from_gymnax(self.foreign, self.cost, **given)
        return dataclasses.replace(made, name=self.name)

    def _start(self, key: PRNGKeyArray) -> tuple[Any, Any]:
        return self.foreign.reset_env(key, self.params)[::-1]

    def _move(self, inner: Any, action: Array, key: PRNGKeyArray) -> tuple[Any, ...]:
        seen, after, reward, done, info = self.foreign.step_env(key, inner, action, self.params)
        terminated = done
        if not hasattr(self.foreign, "is_truncated"):  # before 1.0
            endless = self.params.replace(max_steps_in_episode=NEVER)
            terminated = self.foreign.is_terminal(after, endless)
        return after, seen, reward, terminated, done, info

    def _act(self, action: Array) -> Array:
        if isinstance(self.action_space, Discrete):
            return action
        space = self.foreign.action_space(self.params)
        bounds = np.asarray(space.low, np.float32), np.asarray(space.high, np.float32)
        low, high = (np.broadcast_to(bound, space.shape) for bound in bounds)
        middle, half = (high + low) / 2, (high - low) / 2
        return jnp.asarray(middle) + half * jnp.clip(action.reshape(space.shape), -1.0, 1.0)

    def _see(self, seen: Any) -> Float[Array, "obs"]:
        if (count := self._categories) is not None:
            return jax.nn.one_hot(seen, int(count), dtype=jnp.float32)
        parts = [jnp.asarray(leaf, jnp.float32).ravel() for leaf in jax.tree.leaves(seen)]
        return jnp.concatenate(parts)


class BraxEnvironment(Adapted):
    """Made by `from_brax`. Its `State` has obs, reward, done, metrics and info; `done` means that
    the episode ended by itself."""

    packages = tuple(BRAX_MAKERS)
    normalise_observation: ClassVar = True

    @property
    def action_space(self) -> Continuous:
        return Continuous(int(self.foreign.action_size))

    def with_settings(self, changes: Mapping[str, Any]) -> "BraxEnvironment":
        given: dict[str, Any] = {"horizon": self.horizon, **self.arguments, **changes}
        return from_brax(self.name, self.cost, **given)

    def _start(self, key: PRNGKeyArray) -> tuple[Any, Any]:
        state = self.foreign.reset(jax.random.key_data(key))  # a key of the old kind
        return state, state.obs

    def _move(self, inner: Any, action: Array, key: PRNGKeyArray) -> tuple[Any, ...]:
        del key  # a Brax state carries its own
        after = self.foreign.step(inner, action)
        return after, after.obs, after.reward, jnp.asarray(after.done) > 0, False, after

    def _act(self, action: Array) -> Array:
        return jnp.clip(action, -1.0, 1.0)

    def _read_cost(self, before: Array, action: Array, after: Array, found: Any) -> Any:
        if isinstance(self.cost, str) and self.cost.startswith(METRICS):
            key = INFO + self.cost.removeprefix(METRICS)
            return cost_reader(key, "metrics")(before, action, after, found.metrics)
        return cost_reader(self.cost)(before, action, after, found.info)

    def _see(self, seen: Any) -> Float[Array, "obs"]:
        if isinstance(seen, Mapping):
            if (chosen := self.arguments["observation"]) not in seen:
                raise CanaryError(
                    f"{self.name} has several observations ({', '.join(sorted(seen))}); say which: "
                    "observation='...'."
                )
            seen = seen[chosen]
        return jnp.asarray(seen, jnp.float32).ravel()


def from_gymnax(
    make: Any, cost: str | Cost = "info:cost", *, horizon: int | None = None, **changes: Any
) -> GymnaxEnvironment:
    """A gymnax environment for training.

    `make` is an id such as "CartPole-v1" or an environment of gymnax. The cost of a step is
    `cost(observation, action, next_observation, info)` in jax.numpy, or "info:KEY". `changes` are
    parameters of the environment (EnvParams) to set; `horizon` cuts episodes off, by default after
    max_steps_in_episode.
    """
    if isinstance(make, str):
        identity = make.removeprefix("gymnax:")
        name, gymnax = f"gymnax:{identity}", _load("gymnax", make)
        try:
            environment, _ = gymnax.make(identity)
        except (ValueError, KeyError) as error:
            raise CanaryError(f"gymnax knows no environment {make!r} ({error}).") from None
    else:
        environment, name = make, label_of(type(make))
    params = environment.default_params
    known = {field.name for field in dataclasses.fields(params)}
    for key in changes:
        if key not in known:
            raise CanaryError(
                f"{name} has no parameter {key!r}; it has {', '.join(sorted(known))}."
            )
    own = getattr(params, "max_steps_in_episode", None)
    limit: Any = changes.get("max_steps_in_episode", own) if horizon is None else horizon
    return GymnaxEnvironment(name, environment, cost, limit, dict(changes))


def from_brax(
    make: Any,
    cost: str | Cost = "info:cost",
    *,
    horizon: int | None = EPISODE_LENGTH,
    observation: str | None = None,
    **arguments: Any,
) -> BraxEnvironment:
    """An environment with Brax's state for training.

    `make` is "brax:ant", "crax:safe_goal_point" or "playground:CartpoleBalance", or an environment
    itself; `arguments` go to the package's maker. The cost of a step is "info:KEY", "metrics:KEY",
    or `cost(observation, action, next_observation, info)` in jax.numpy. `observation` chooses one
    where there are several.
    """
    if isinstance(make, str):
        package, _, identity = make.partition(":")
        if package not in BRAX_MAKERS or not identity:
            raise CanaryError(
                f"Name the package: {', '.join(f'{known}:NAME' for known in BRAX_MAKERS)}, not "
                f"{make!r}."
            )
        module, function = BRAX_MAKERS[package]
        maker = attrgetter(function)(_load(module, make))
        try:
            environment, name = maker(identity, **arguments), make
        except Exception as error:
            raise CanaryError(f"{make} could not be made ({describe(error)}).") from error
    else:
        environment, name = make, label_of(type(make))
    members = all(hasattr(environment, member) for member in ("reset", "step", "action_size"))
    if not members or len(inspect.signature(environment.step).parameters) != 2:
        raise CanaryError(
            f"{name} is not an environment of Brax's kind: that has reset(key), "
            "step(state, action) and action_size."
        )
    limit: Any = horizon
    return BraxEnvironment(name, environment, cost, limit, arguments | {"observation": observation})


def _load(module: str, why: str) -> Any:
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise CanaryError(f"{why} needs the package {error.name}; install it.") from None
