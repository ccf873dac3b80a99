"""Environments with one question each, whose answers are known."""

from dataclasses import dataclass, replace
from enum import IntEnum
from typing import ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray

from canary.environments.icy_lake import IcyLake
from canary.environments.protocol import Continuous, Discrete, EnvironmentState


def state(inner, observation, time=0, reward=0.0, cost=0.0, terminated=False, truncated=False):
    return EnvironmentState(
        inner=inner,
        observation=jnp.asarray(observation, jnp.float32),
        reward=jnp.asarray(reward, jnp.float32),
        cost=jnp.asarray(cost, jnp.float32),
        terminated=jnp.asarray(terminated),
        truncated=jnp.asarray(truncated),
        time=jnp.asarray(time, jnp.int32),
    )


@dataclass(frozen=True)
class Aim:
    """Continuous actions: reward 1 - (a - target)^2, the target in an observation that has physical
    units.

    A new target is drawn every step; it is seen as 300 + 50 * target, beside noise around -1000.
    Nothing ends an episode but the horizon, and every step costs `cost`.
    """

    horizon: int = 5
    cost: float = 0.0
    observation_size = 2
    action_space = Continuous(1)
    normalise_observation = True

    def reset(self, key: PRNGKeyArray) -> EnvironmentState:
        return self._at(key)

    def step(self, now: EnvironmentState, action: Array, key: PRNGKeyArray) -> EnvironmentState:
        time = now.time + 1
        reward = 1 - (jnp.clip(action[0], -1, 1) - now.inner) ** 2
        return self._at(
            key, time=time, reward=reward, cost=self.cost, truncated=time >= self.horizon
        )

    def _at(self, key: PRNGKeyArray, **fields) -> EnvironmentState:
        draws = jax.random.normal(key, (2,))
        target = jnp.where(draws[0] > 0, 0.6, -0.6)
        return state(
            target, jnp.array([300.0, -1000.0]) + jnp.stack([50 * target, 0.3 * draws[1]]), **fields
        )


@dataclass(frozen=True, kw_only=True)
class DearLake(IcyLake):
    """IcyLake with all costs multiplied."""

    factor: float

    def step(self, now: EnvironmentState, action: Array, key: PRNGKeyArray) -> EnvironmentState:
        after = super().step(now, action, key)
        return replace(after, cost=self.factor * after.cost)


class Kind(IntEnum):
    CONSTANT = 0  # one step, reward 1: the value is 1
    OBSERVATION = 1  # one step, reward equals the observation, -1 or 1: so does the value
    DISCOUNTING = 2  # two steps, reward 1 after the second: the values are gamma and 1
    ACTION = 3  # one step, reward 1 for the action that the observation names, else 0
    TRADE_OFF = 4  # one step, action 1 earns 1 and costs 2, action 0 nothing
    COSTLY = 5  # two steps that cost 1 each


@dataclass(frozen=True)
class Probe:
    """One of these questions. Which one may be a traced number, so that one program serves all."""

    kind: Array | int
    horizon: int = 5  # never reached
    observation_size: ClassVar[int] = 2
    action_space: ClassVar[Discrete] = Discrete(2)
    normalise_observation: ClassVar[bool] = False

    def reset(self, key: Array) -> EnvironmentState:
        varied = (self.kind == Kind.OBSERVATION) | (self.kind == Kind.ACTION)
        sign = jnp.where(varied, jnp.where(jax.random.bernoulli(key), 1.0, -1.0), 0.0)
        return state(sign, jnp.stack([sign, jnp.zeros(())]))

    def step(self, now: EnvironmentState, action: Array, key: Array) -> EnvironmentState:
        del key
        sign = now.inner
        chosen = action.astype(jnp.float32)
        matched = (chosen == (sign > 0)).astype(jnp.float32)
        time = now.time + 1
        last = ((self.kind != Kind.DISCOUNTING) & (self.kind != Kind.COSTLY)) | (time == 2)
        one, nothing = jnp.ones(()), jnp.zeros(())
        rewards = jnp.stack([one, sign, last.astype(jnp.float32), matched, chosen, nothing])
        cost = jnp.stack([nothing, nothing, nothing, nothing, 2 * chosen, one])[self.kind]
        seen = jnp.stack([sign, time.astype(jnp.float32)])
        return state(sign, seen, time, rewards[self.kind], cost, terminated=last)
