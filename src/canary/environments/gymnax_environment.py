"""gymnax environments, of both generations, inside the compiled program.

Before 1.0 `done` of `step_env` includes the time limit, so `is_terminal` is asked without a limit
whether the episode ended by itself. From 1.0 on `step_env` returns `terminated`. Canary calls
`reset_env` itself; gymnax's auto-reset is not used.
"""

import dataclasses
from collections.abc import Mapping
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from canary.environments.jax_adapters import (
    Adapted,
    action_mapping,
    checked_horizon,
    like,
    require,
    scalar,
)
from canary.environments.protocol import ActionSpace, EnvironmentState, first_state
from canary.errors import CanaryError
from canary.host.player import Cost, cost_reader

NEVER = 2**30  # steps


class GymnaxEnvironment(Adapted):
    """Made by `from_gymnax`."""

    packages = ("gymnax",)

    @cached_property
    def params(self) -> Any:
        return self.foreign.default_params.replace(**self.arguments)

    @cached_property
    def _actions(self) -> tuple[ActionSpace, Any]:
        return action_mapping(self.foreign.action_space(self.params), self.name)

    @property
    def action_space(self) -> ActionSpace:
        return self._actions[0]

    @cached_property
    def _categories(self) -> int | None:
        """How many observations there are, if they are counted."""
        space = self.foreign.observation_space(self.params)
        return int(space.n) if hasattr(space, "n") else None

    @cached_property
    def observation_size(self) -> int:
        state = jax.eval_shape(
            lambda key: self.foreign.reset_env(key, self.params)[0], jax.random.key(0)
        )
        return jax.eval_shape(self._see, state).shape[0]

    @property
    def normalise_observation(self) -> bool:
        return self._categories is None

    def with_settings(self, changes: Mapping[str, Any]) -> "GymnaxEnvironment":
        given: dict[str, Any] = {"horizon": self.horizon, **self.arguments, **changes}
        return from_gymnax(self.name, self.cost, **given)

    def reset(self, key: PRNGKeyArray) -> EnvironmentState:
        observation, state = self.foreign.reset_env(key, self.params)
        return first_state(like(state, self._shapes, self.name), self._see(observation))

    def step(self, state: EnvironmentState, action: Array, key: PRNGKeyArray) -> EnvironmentState:
        move = self._actions[1](action)
        seen, after, reward, done, info = self.foreign.step_env(key, state.inner, move, self.params)
        terminated = self._is_terminated(after, done)
        observation, time = self._see(seen), state.time + 1
        cost = cost_reader(self.cost)(state.observation, move, observation, info)
        cut = (jnp.asarray(done, bool) | (time >= self.horizon)) & ~terminated
        return EnvironmentState(
            inner=like(after, self._shapes, self.name),
            observation=observation,
            reward=scalar(reward),
            cost=scalar(cost),
            terminated=terminated,
            truncated=cut,
            time=time,
        )

    def _is_terminated(self, after: Any, done: Array) -> Array:
        if hasattr(self.foreign, "is_truncated"):  # from 1.0 on
            return jnp.asarray(done, bool).reshape(())
        endless = self.params.replace(max_steps_in_episode=NEVER)
        return jnp.asarray(self.foreign.is_terminal(after, endless), bool).reshape(())

    @cached_property
    def _shapes(self) -> Any:
        """Shapes and types of the inner state after a step."""

        def play(key: PRNGKeyArray) -> Any:
            _, state = self.foreign.reset_env(key, self.params)
            action = self.foreign.action_space(self.params).sample(key)
            return self.foreign.step_env(key, state, action, self.params)[1]

        return jax.eval_shape(play, jax.random.key(0))

    def _see(self, observation: Any) -> Float[Array, "obs"]:
        if self._categories is not None:
            return jax.nn.one_hot(observation, self._categories, dtype=jnp.float32)
        parts = [jnp.asarray(leaf, jnp.float32).ravel() for leaf in jax.tree.leaves(observation)]
        return jnp.concatenate(parts)


def from_gymnax(
    make: Any, cost: str | Cost = "info:cost", *, horizon: int | None = None, **changes: Any
) -> GymnaxEnvironment:
    """A gymnax environment for training.

    `make` is an id such as "CartPole-v1" or an environment of gymnax. The cost of a step is
    `cost(observation, action, next_observation, info)` in jax.numpy, or "info:KEY". `changes` are
    parameters of the environment (EnvParams) to set; `horizon` cuts episodes off,
    max_steps_in_episode if not said.
    """
    if isinstance(make, str):
        identity = make.removeprefix("gymnax:")
        gymnax = require("gymnax", f"gymnax:{identity}")
        try:
            environment, params = gymnax.make(identity)  # its default ones
        except (ValueError, KeyError) as error:
            raise CanaryError(
                f"gymnax knows no environment {identity!r} ({' '.join(str(error).split())})."
            ) from None
        name = f"gymnax:{identity}"
    else:
        environment, params, name = (
            make,
            make.default_params,
            f"{type(make).__module__}:{type(make).__name__}",
        )
    known = {field.name for field in dataclasses.fields(params)}
    for key in changes:
        if key not in known:
            raise CanaryError(
                f"{name} has no parameter {key!r}; it has {', '.join(sorted(known))}."
            )
    own = getattr(params, "max_steps_in_episode", None)
    limit = changes.get("max_steps_in_episode", own) if horizon is None else horizon
    cost = "info:cost" if cost == "info" else cost
    cost_reader(cost)  # a mistake in it is found now
    return GymnaxEnvironment(name, environment, cost, checked_horizon(limit, name), dict(changes))
