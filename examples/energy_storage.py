"""A battery that earns by trading and must not leave a village in the dark: P(unserved > 2 kWh) <=
0.05 in two days.

    python examples/energy_storage.py
    canary train --env examples.energy_storage:EnergyStorage --limit 2 --epsilon 0.05

Every hour the battery buys from or sells to the grid at a price that goes up and down with the day
and with noise. When the grid fails (rarely, for some hours), the village lives on the battery
alone; what it lacks is the cost.

    charge' = charge + bought - sold - served              0 <= charge <= capacity
    reward  = price (sold - bought) - wear |bought - sold|   cost = demand that nobody serves, in kWh
"""

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp

import canary
from canary import Continuous, EnvironmentState


class Battery(NamedTuple):
    charge: jax.Array
    noise: jax.Array
    """Of the price, above its daily course."""
    failing: jax.Array
    """Whether the grid is down."""


@dataclass(frozen=True, kw_only=True)
class EnergyStorage:
    horizon: int = 48
    capacity: float = 10.0
    power: float = 3.0
    """Most that is bought or sold in an hour, in kWh."""
    wear: float = 0.02
    failure: float = 0.01
    """Probability that the grid fails in an hour."""
    repair: float = 0.4
    """Probability that a failed grid is back after an hour."""
    demand: float = 1.5
    """Of the village while the grid is down, in kWh an hour."""

    observation_size = 5
    normalise_observation = True
    action_space = Continuous(1)

    @property
    def default_constraint(self) -> canary.Chance:
        return canary.Chance(limit=2.0, epsilon=0.05)

    def reset(self, key):
        charge = self.capacity * jax.random.uniform(key)
        battery = Battery(charge, jnp.zeros(()), jnp.zeros((), bool))
        return self._state(battery, jnp.zeros(()), jnp.zeros(()), jnp.zeros((), jnp.int32))

    def step(self, state, action, key):
        before: Battery = state.inner
        key_price, key_grid, key_demand = jax.random.split(key, 3)
        wish = self.power * jnp.clip(action[0], -1.0, 1.0)
        traded = jnp.clip(wish, -before.charge, self.capacity - before.charge)
        traded = jnp.where(before.failing, 0.0, traded)
        price = self._price(before, state.time)
        reward = -price * traded - self.wear * jnp.abs(traded)
        needed = jnp.where(
            before.failing, self.demand * (0.5 + jax.random.uniform(key_demand)), 0.0
        )
        served = jnp.minimum(needed, before.charge)
        draw = jax.random.uniform(key_grid)
        failing = jnp.where(before.failing, draw > self.repair, draw < self.failure)
        noise = 0.8 * before.noise + 0.3 * jax.random.normal(key_price)
        after = Battery(before.charge + traded - served, noise, failing)
        return self._state(after, reward, needed - served, state.time + 1)

    def _price(self, battery, time):
        """In cents per kWh, high in the evening."""
        return 3.0 + jnp.sin(2 * jnp.pi * (time - 13) / 24) + battery.noise

    def _state(self, battery, reward, cost, time):
        angle = 2 * jnp.pi * time / 24
        seen = [
            battery.charge,
            self._price(battery, time),
            battery.failing,
            jnp.sin(angle),
            jnp.cos(angle),
        ]
        return EnvironmentState(
            inner=battery,
            observation=jnp.stack([jnp.asarray(part, jnp.float32) for part in seen]),
            reward=reward,
            cost=cost,
            terminated=jnp.zeros((), bool),
            truncated=time >= self.horizon,
            time=time,
        )


def main(total_steps: int = 2_000_000, **how) -> canary.Run:
    run = canary.train(EnergyStorage(), seeds=2, total_steps=total_steps, **how)
    print(run.certify()["sentence"])
    print(run.export("numpy")["path"])
    return run


if __name__ == "__main__":
    main()
