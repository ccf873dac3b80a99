"""Environments with one question each, whose answers are known: values, actions, and a price worth
paying."""

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
class Questions:
    """Four questions, one per episode, drawn at the reset; two actions.

    0 constant: one step, reward 1, cost 1. 1 observation: one step, reward 2, no cost. 2
    discounting: two steps, cost 1 each, reward 1 at the end. 3 action: one step, reward equal to
    the action (0 or 1). The observation is the question, one-hot; its last entry is 1 in the second
    step of question 2 instead.
    """

    horizon: int = 2
    observation_size = 5
    action_space = Discrete(2)
    normalise_observation = False

    def reset(self, key: PRNGKeyArray) -> EnvironmentState:
        question = jax.random.randint(key, (), 0, 4)
        return state(question, jax.nn.one_hot(question, 5))

    def step(self, now: EnvironmentState, action: Array, key: PRNGKeyArray) -> EnvironmentState:
        question, time = now.inner, now.time + 1
        terminated = (question != 2) | (time == 2)
        rewards = jnp.stack([1.0, 2.0, (time == 2).astype(float), action.astype(float)])
        cost = jnp.array([1.0, 0.0, 1.0, 0.0])[question]
        ends = terminated, (time >= 2) & ~terminated
        return state(question, jax.nn.one_hot(4, 5), time, rewards[question], cost, *ends)


@dataclass(frozen=True)
class Price:
    """One step: action 1 earns 1 and costs 1, action 0 earns and costs nothing."""

    horizon: int = 1
    observation_size = 1
    action_space = Discrete(2)
    normalise_observation = False

    def reset(self, key: PRNGKeyArray) -> EnvironmentState:
        return state(jnp.zeros(()), jnp.ones(1))

    def step(self, now: EnvironmentState, action: Array, key: PRNGKeyArray) -> EnvironmentState:
        return state(now.inner, jnp.ones(1), now.time + 1, action, action, terminated=True)


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


@dataclass(frozen=True)
class Probe:
    """One of five questions. Which one may be a traced number, so that one program serves all."""

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
        last = (self.kind != Kind.DISCOUNTING) | (time == 2)
        rewards = jnp.stack([jnp.ones(()), sign, last.astype(jnp.float32), matched, chosen])
        cost = jnp.where(self.kind == Kind.TRADE_OFF, 2 * chosen, 0.0)
        seen = jnp.stack([sign, time.astype(jnp.float32)])
        return state(sign, seen, time, rewards[self.kind], cost, terminated=last)
