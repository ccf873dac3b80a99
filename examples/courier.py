"""A courier with two costs and a promise about each: parcels damaged, and fuel burnt.

    python examples/courier.py                  train, then certify both promises together

On each of 20 legs the courier rests, drives slowly or drives fast, in fair weather or in a storm,
which comes and goes. Fast legs earn more, burn more fuel, and shake the parcels:

    leg     reward    fuel    chance of a damaged parcel, fair / storm
    rest    0         0       0 / 0
    slow    1         1.5     0.01 / 0.05
    fast    2         2       0.1 / 0.3

    P(more than 2 parcels damaged) <= 0.05    and    mean fuel <= 30

The best policy earns 29.02, without the first promise 30.00, without the second 31.37 (a linear
program over all policies, tests/problems/two_limits.py).
"""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

import canary
from canary import Discrete, EnvironmentState

REWARD = (0.0, 1.0, 2.0)
FUEL = (0.0, 1.5, 2.0)
DAMAGE = ((0.0, 0.01, 0.1), (0.0, 0.05, 0.3))
STORM = (0.2, 0.6)  # chance that the next leg has a storm, after fair weather and after a storm
CONSTRAINT = [canary.Chance(limit=2.65, epsilon=0.05), canary.Mean(limit=30.0)]

# Larger batches and windows than usual: 400 episodes say more about a probability of 0.05 than 40
OVERRIDES = {
    "training.environments": 20,
    "training.rollout_length": 100,
    "training.total_steps": 600_000,
    "algo.minibatch_size": 200,
    "algo.window": 400,
    "algo.epochs": 4,
    "algo.entropy": 0.005,
}


@dataclass(frozen=True, kw_only=True)
class Courier:
    horizon: int = 20

    default_constraint = CONSTRAINT
    largest_step_cost = (1.0, 2.0)

    @property
    def observation_size(self) -> int:
        return 2

    @property
    def action_space(self) -> Discrete:
        return Discrete(len(REWARD))

    @property
    def normalise_observation(self) -> bool:
        return False

    def reset(self, key: PRNGKeyArray) -> EnvironmentState:
        del key  # every tour starts in fair weather
        nothing = jnp.zeros((), jnp.int32)
        return self._state(nothing, jnp.zeros(()), jnp.zeros(2), nothing)

    def step(
        self, state: EnvironmentState, action: Int[Array, ""], key: PRNGKeyArray
    ) -> EnvironmentState:
        key_damage, key_weather = jax.random.split(key)
        is_damaged = jax.random.bernoulli(key_damage, jnp.array(DAMAGE)[state.inner, action])
        weather = jax.random.bernoulli(key_weather, jnp.array(STORM)[state.inner])
        costs = jnp.stack([is_damaged.astype(jnp.float32), jnp.array(FUEL)[action]])
        reward = jnp.array(REWARD)[action]
        return self._state(weather.astype(jnp.int32), reward, costs, state.time + 1)

    def _state(
        self, weather: Int[Array, ""], reward: Array, costs: Float[Array, "2"], time: Array
    ) -> EnvironmentState:
        return EnvironmentState(
            inner=weather,
            observation=jax.nn.one_hot(weather, 2, dtype=jnp.float32),
            reward=reward,
            cost=costs,
            terminated=time >= self.horizon,  # no leg follows, so there is nothing more to earn
            truncated=jnp.zeros((), bool),
            time=time,
        )


def main(out: str | Path = "runs", **options: Any) -> canary.Run:
    """Train and certify; `options` are those of `canary.train`."""
    run = canary.train(Courier(), out=out, **{"overrides": OVERRIDES} | options)
    print(run.certify()["sentence"])
    return run


if __name__ == "__main__":
    # Imported by its name, so that the command line can find the environment of the run again
    sys.path.insert(0, str(Path(__file__).parents[1]))
    __import__("examples.courier").courier.main()
