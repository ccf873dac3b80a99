"""An environment that is right, and everything that can be wrong with one, one thing at a time."""

from dataclasses import dataclass, field, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from canary.environments.protocol import Continuous, EnvironmentState


@dataclass(frozen=True, kw_only=True)
class Walk:
    """x' = x + a + noise; reward x', cost |x'|; ends beyond 5."""

    horizon: int = 12
    noise: float = 0.5
    fault: str = ""

    observation_size = 2
    normalise_observation = True

    @property
    def action_space(self) -> Any:
        return Continuous(1)

    def reset(self, key):
        x = jax.random.normal(key)
        return self._state(
            x, jnp.zeros(()), jnp.zeros(()), jnp.zeros((), jnp.int32), jnp.zeros((), bool)
        )

    def step(self, state, action, key):
        x = state.inner + action[0] + self.noise * jax.random.normal(key)
        return self._state(x, x, jnp.abs(x), state.time + 1, x > 5)

    def _state(self, x, reward, cost, time, terminated):
        truncated = (time >= self.horizon) & ~terminated
        seen = jnp.stack([x, time / self.horizon])
        return EnvironmentState(
            inner=x, observation=seen, reward=reward, cost=cost,
            terminated=terminated, truncated=truncated, time=time,
        )  # fmt: skip


class WrongSize(Walk):
    observation_size = 3


class NamedObservation(Walk):
    def _state(self, x, reward, cost, time, terminated):
        good = super()._state(x, reward, cost, time, terminated)
        return replace(good, observation={"x": good.observation})


class CostVector(Walk):
    def _state(self, x, reward, cost, time, terminated):
        good = super()._state(x, reward, cost, time, terminated)
        return replace(good, cost=cost[None])


class TwoCosts(Walk):
    """Right, with a second cost that is twice the first."""

    def _state(self, x, reward, cost, time, terminated):
        good = super()._state(x, reward, cost, time, terminated)
        return replace(good, cost=jnp.stack([cost, 2 * cost]))


class NoDataclass:
    horizon, observation_size, normalise_observation, action_space = 12, 2, True, Continuous(1)

    def __init__(self):
        self.walk = Walk()

    def reset(self, key):
        return self.walk.reset(key)

    def step(self, state, action, key):
        return self.walk.step(state, action, key)


@dataclass(frozen=True, kw_only=True)
class NoJson(Walk):
    table: Any = field(default_factory=lambda: np.zeros(3))


class PythonIf(Walk):
    def step(self, state, action, key):
        if state.inner > 0:
            return super().step(state, action, key)
        return super().step(state, -action, key)


class OtherInner(Walk):
    def reset(self, key):
        good = super().reset(key)
        return replace(good, inner=jnp.zeros((2,)))

    def step(self, state, action, key):
        x = state.inner.sum() + action[0]
        return self._state(x, x, jnp.abs(x), state.time + 1, x > 5)


class FrozenNoise(Walk):
    def step(self, state, action, key):
        x = state.inner + action[0] + np.random.normal()  # noqa: NPY002 - the mistake itself
        return self._state(x, x, jnp.abs(x), state.time + 1, x > 5)


class Odd(Walk):
    """What goes wrong only while it is played: `fault` says what."""

    def _state(self, x, reward, cost, time, terminated):
        late = time >= 4
        good = super()._state(x, reward, cost, time, terminated)
        ended, cut = good.terminated, good.truncated
        if self.fault == "nan":
            cost = jnp.where(late, jnp.nan, cost)
        if self.fault == "start":
            cost = jnp.where(time == 0, 2.0, cost)
        if self.fault == "endless":
            ended, cut = time > 2 * self.horizon, jnp.zeros((), bool)
        if self.fault == "both":
            ended = cut = late
        if self.fault == "early":
            cut = late & ~ended
        if self.fault == "negative":
            cost = -cost
        clock = time * 2 if self.fault == "clock" else time
        return replace(good, cost=cost, terminated=ended, truncated=cut, time=clock)


class NoTruncated(Walk):
    def step(self, state, action, key):
        after = vars(super().step(state, action, key))
        return EnvironmentState(**{name: after[name] for name in after if name != "truncated"})


class Calls(Walk):
    """Its reward comes from Python, which fails when an episode is `fault` steps old."""

    def step(self, state, action, key):
        after = super().step(state, action, key)
        shape = jax.ShapeDtypeStruct((), jnp.float32)
        given = after.reward, after.time
        return replace(
            after, reward=jax.pure_callback(self._ask, shape, *given, vmap_method="expand_dims")
        )

    def _ask(self, reward, time):
        if np.any(time == int(self.fault)):
            raise OSError("the line is dead.")
        return reward
