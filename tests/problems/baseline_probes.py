"""Probe environments: each isolates one ability that a learner must have, and its right answer is
known.

Which probe it is may be a traced number, so that one compiled program serves all of them.
"""

from dataclasses import dataclass
from enum import IntEnum
from typing import ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array

from canary.environments.protocol import Discrete, EnvironmentState
from problems.probe_environments import state


class Kind(IntEnum):
    CONSTANT = 0  # one step, reward 1: the value is 1
    OBSERVATION = 1  # one step, reward equals the observation, -1 or 1: so does the value
    DISCOUNTING = 2  # two steps, reward 1 after the second: the values are gamma and 1
    ACTION = 3  # one step, reward 1 for the action that the observation names, else 0
    TRADE_OFF = 4  # one step, action 1 earns 1 and costs 2, action 0 nothing


@dataclass(frozen=True)
class Probe:
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
