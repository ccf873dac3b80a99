"""JAX environments of other packages, in the compiled program: gymnax, and those with Brax's state
(Brax, MuJoCo Playground, CRAX).

Canary cuts episodes off at its horizon and resets them, so pass bare environments, without the
package's episode and auto-reset wrappers.
"""

import dataclasses
import importlib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter
from typing import Any

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
from canary.host.player import INFO, Cost, cost_reader
from canary.host.references import describe, label_of, name_of
from canary.values import Count, convert

METRICS = "metrics:"
EPISODE_LENGTH = 1000  # steps, as in the trainers of Brax and its relatives
NEVER = 2**30  # steps
BRAX_MAKERS = {
    "brax": ("brax.envs", "get_environment"),
    "crax": ("crax.envs", "get_environment"),
    "playground": ("mujoco_playground", "registry.load"),
}
PACKAGES = ("gymnax", *BRAX_MAKERS)


@dataclass(frozen=True, eq=False, kw_only=True)
class Adapted:
    """An environment of another package, made by `from_gymnax` or `from_brax`."""

    name: str
    arguments: dict[str, Any]
    cost: str | Cost
    horizon: int
    action_space: ActionSpace
    normalise_observation: bool
    again: Callable[..., "Adapted"]
    """A function that makes the environment with other arguments."""
    start: Callable[[PRNGKeyArray], tuple[Any, Array]]
    """A reset: the package's state, and the observation as a vector."""
    move: Callable[[Any, Array, PRNGKeyArray], tuple[Any, ...]]
    """A step with the package's action: its state, observation, reward, terminated, truncated by
    the package, and the data from which the cost is read."""
    act: Callable[[Array], Array]
    """Converts one of our actions to the package's."""
    read_cost: Cost

    def __post_init__(self):
        if self.horizon is None:
            raise CanaryError(f"{self.name} states no time limit; set one with horizon=...")
        horizon = convert(Count, self.horizon, f"the horizon of {self.name}")
        object.__setattr__(self, "horizon", horizon)

    @cached_property
    def observation_size(self) -> int:
        return jax.eval_shape(self.start, jax.random.key(0))[1].shape[0]

    @cached_property
    def _template(self) -> Any:
        """Shapes and types of the package's state after a step."""

        def play(key: PRNGKeyArray) -> Any:
            space = self.action_space
            action = jnp.zeros(space.size) if isinstance(space, Continuous) else jnp.int32(0)
            return self.move(self.start(key)[0], self.act(action), key)[0]

        return jax.eval_shape(play, jax.random.key(0))

    def _typed(self, inner: Any) -> Any:
        """The state with the types of a state after a step: packages also return Python numbers."""
        return jax.tree.map(lambda one, to: jnp.asarray(one, to.dtype), inner, self._template)

    def reset(self, key: PRNGKeyArray) -> EnvironmentState:
        inner, observation = self.start(key)
        return first_state(self._typed(inner), observation)

    def step(self, state: EnvironmentState, action: Array, key: PRNGKeyArray) -> EnvironmentState:
        move = self.act(action)
        inner, observation, reward, terminated, cut, found = self.move(state.inner, move, key)
        time, terminated = state.time + 1, jnp.asarray(terminated, bool).reshape(())
        cost = self.read_cost(state.observation, move, observation, found)
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

    def with_settings(self, changes: Mapping[str, Any]) -> "Adapted":
        given = {"horizon": self.horizon, **self.arguments, **changes}
        return dataclasses.replace(self.again(**given), name=self.name)

    def source(self) -> dict[str, Any] | None:
        """Name, arguments and cost for another process; None if it cannot make the environment."""
        cost = self.cost if isinstance(self.cost, str) else name_of(self.cost)
        if cost is None or self.name.partition(":")[0] not in PACKAGES:
            return None
        arguments = {**self.arguments, "horizon": self.horizon}
        return {"name": self.name, "arguments": arguments, "cost": cost}


def from_gymnax(
    make: Any, cost: str | Cost = "info:cost", *, horizon: int | None = None, **changes: Any
) -> Adapted:
    """A gymnax environment for training.

    `make` is an id such as "CartPole-v1" or an environment of gymnax. The cost of a step is
    `cost(observation, action, next_observation, info)` in jax.numpy, or "info:KEY". `changes` set
    parameters of the environment (EnvParams). `horizon` cuts episodes off; the default is
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
    params = params.replace(**changes)
    limit: Any = getattr(params, "max_steps_in_episode", None) if horizon is None else horizon
    categories = getattr(environment.observation_space(params), "n", None)
    space, act = _gymnax_actions(environment.action_space(params), name)

    def see(seen: Any) -> Float[Array, "obs"]:
        if categories is not None:
            return jax.nn.one_hot(seen, int(categories), dtype=jnp.float32)
        parts = [jnp.asarray(leaf, jnp.float32).ravel() for leaf in jax.tree.leaves(seen)]
        return jnp.concatenate(parts)

    def start(key: PRNGKeyArray) -> tuple[Any, Array]:
        seen, inner = environment.reset_env(key, params)
        return inner, see(seen)

    def move(inner: Any, action: Array, key: PRNGKeyArray) -> tuple[Any, ...]:
        seen, after, reward, done, info = environment.step_env(key, inner, action, params)
        terminated = done
        # In version 1.0 and later, `done` means terminated; earlier it includes the time limit.
        if not hasattr(environment, "is_truncated"):
            endless = params.replace(max_steps_in_episode=NEVER)
            terminated = environment.is_terminal(after, endless)
        return after, see(seen), reward, terminated, done, info

    return Adapted(
        name=name, arguments=dict(changes), cost=cost, horizon=limit, action_space=space,
        normalise_observation=categories is None, start=start, move=move, act=act,
        again=lambda **given: from_gymnax(environment, cost, **given), read_cost=cost_reader(cost),
    )  # fmt: skip


def _gymnax_actions(space: Any, name: str) -> tuple[ActionSpace, Callable[[Array], Array]]:
    """Our action space, and a function from our actions to the package's."""
    if hasattr(space, "n"):
        return Discrete(int(space.n)), lambda action: action
    bounds = (np.asarray(getattr(space, side, np.inf), np.float32) for side in ("low", "high"))
    low, high = (np.broadcast_to(bound, space.shape) for bound in bounds)
    if not (np.isfinite(low).all() and np.isfinite(high).all()):
        raise CanaryError(
            f"The action space of {name} is {space}; canary acts in Discrete spaces and in Box "
            "spaces with finite bounds."
        )
    middle, half = (high + low) / 2, (high - low) / 2

    def act(action: Array) -> Array:
        return jnp.asarray(middle) + half * jnp.clip(action.reshape(space.shape), -1.0, 1.0)

    return Continuous(int(np.prod(space.shape))), act


def from_brax(
    make: Any,
    cost: str | Cost = "info:cost",
    *,
    horizon: int | None = EPISODE_LENGTH,
    observation: str | None = None,
    **arguments: Any,
) -> Adapted:
    """An environment for training, from one with Brax's state.

    `make` is "brax:ant", "crax:safe_goal_point" or "playground:CartpoleBalance", or an environment;
    `arguments` are passed to the package's maker. The cost of a step is "info:KEY", "metrics:KEY",
    or `cost(observation, action, next_observation, info)` in jax.numpy. `observation` names one of
    several observations.
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
    place, key = "info", cost
    if isinstance(cost, str) and cost.startswith(METRICS):
        place, key = "metrics", INFO + cost.removeprefix(METRICS)

    def see(seen: Any) -> Float[Array, "obs"]:
        if isinstance(seen, Mapping):
            if observation not in seen:
                raise CanaryError(
                    f"{name} has several observations ({', '.join(sorted(seen))}); say which: "
                    "observation='...'."
                )
            seen = seen[observation]
        return jnp.asarray(seen, jnp.float32).ravel()

    def start(key: PRNGKeyArray) -> tuple[Any, Array]:
        state = environment.reset(jax.random.key_data(key))  # an old-style key
        return state, see(state.obs)

    def move(inner: Any, action: Array, key: PRNGKeyArray) -> tuple[Any, ...]:
        del key  # a Brax state has its own key
        after = environment.step(inner, action)
        ended = jnp.asarray(after.done) > 0  # the episode terminated
        return after, see(after.obs), after.reward, ended, False, getattr(after, place)

    limit: Any = horizon
    return Adapted(
        name=name, arguments=arguments | {"observation": observation}, cost=cost, horizon=limit,
        action_space=Continuous(int(environment.action_size)), normalise_observation=True,
        start=start, move=move, act=lambda action: jnp.clip(action, -1.0, 1.0),
        again=lambda **given: from_brax(make, cost, **given), read_cost=cost_reader(key, place),
    )  # fmt: skip


def _load(module: str, why: str) -> Any:
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise CanaryError(f"{why} needs the package {error.name}; install it.") from None
