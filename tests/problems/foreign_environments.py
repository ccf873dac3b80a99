"""The interfaces of gymnax (before and from 1.0 on) and Brax, in small environments."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp


class Params(eqx.Module):
    max_steps_in_episode: int = 6
    goal: float = 3.0

    def replace(self, **changes: Any) -> "Params":
        values = {"max_steps_in_episode": self.max_steps_in_episode, "goal": self.goal} | changes
        return Params(**values)


class WalkState(eqx.Module):
    x: jax.Array
    time: Any


class Box(NamedTuple):
    low: float
    high: float
    shape: tuple[int, ...]

    def sample(self, key):
        return jax.random.uniform(key, self.shape, minval=self.low, maxval=self.high)


class GymnaxWalk:
    """x' = x + a; ends beyond the goal; step_env says nothing of the time limit."""

    default_params = Params()

    def reset_env(self, key, params):
        x = jax.random.uniform(key)
        return jnp.stack([x, 0.0]), WalkState(x, 0)

    def step_env(self, key, state, action, params):
        x = state.x + action[0] + 0.1 * jax.random.normal(key)
        state = WalkState(x, state.time + 1)
        done = self.is_terminated(state, params)
        return jnp.stack([x, 1.0]), state, x, done, {"cost": jnp.abs(x), "discount": 1.0}

    def is_terminated(self, state, params):
        return state.x > params.goal

    def is_truncated(self, state, params):
        return state.time >= params.max_steps_in_episode

    def action_space(self, params):
        return Box(-2.0, 2.0, (1,))

    def observation_space(self, params):
        return Box(-10.0, 10.0, (2,))


class OldGymnaxWalk:
    """The same before 1.0: `done` mixes the end and the time limit."""

    default_params = Params()
    reset_env, action_space = GymnaxWalk.reset_env, GymnaxWalk.action_space
    observation_space = GymnaxWalk.observation_space

    def step_env(self, key, state, action, params):
        x = state.x + action[0] + 0.1 * jax.random.normal(key)
        state = WalkState(x, state.time + 1)
        info = {"cost": jnp.abs(x), "discount": 1.0}
        return jnp.stack([x, 1.0]), state, x, self.is_terminal(state, params), info

    def is_terminal(self, state, params):
        return (state.x > params.goal) | (state.time >= params.max_steps_in_episode)


class BraxState(eqx.Module):
    pipeline_state: Any
    obs: Any
    reward: Any
    done: Any
    metrics: dict[str, Any]
    info: dict[str, Any]


class BraxWalk:
    """Brax's form: `done` is a float, the cost is in info, keys are of the old kind."""

    action_size = 1

    def __init__(self, several: bool = False):
        self.several = several

    def _obs(self, x):
        return (
            {"state": x[None], "privileged_state": jnp.stack([x, x])} if self.several else x[None]
        )

    def reset(self, rng):
        assert rng.dtype == jnp.uint32
        x = jax.random.uniform(rng)
        return BraxState(x, self._obs(x), 0.0, 0.0, {"speed": 0.0}, {"cost": 0.0, "rng": rng})

    def step(self, state, action):
        rng, key = jax.random.split(state.info["rng"])
        x = state.pipeline_state + action[0] + 0.1 * jax.random.normal(key)
        done = jnp.where(x > 3.0, 1.0, 0.0)
        info = {"cost": jnp.abs(x), "rng": rng}
        return BraxState(x, self._obs(x), x, done, {"speed": jnp.abs(action[0])}, info)
