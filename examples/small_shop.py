"""An environment of your own, trained, certified and exported, in 60 lines.

    python examples/small_shop.py
    canary train --env examples.small_shop:SmallShop --limit 6.5 --epsilon 0.05

Each morning the shop orders, then customers come: 0 to 2 units a day, rarely a burst of 6. What is
not in stock is not sold. How often may it disappoint many customers? P(more than 6.5 units of unmet
demand in 30 days) <= 0.05.
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp

import canary
from canary import Discrete, EnvironmentState


@dataclass(frozen=True, kw_only=True)
class SmallShop:
    burst: float = 0.03
    horizon: int = 30
    observation_size = 1
    normalise_observation = False
    action_space = Discrete(4)  # units to order

    def reset(self, key):
        return self._state(jnp.zeros(()), jnp.zeros(()), jnp.zeros(()), jnp.zeros((), jnp.int32))

    def step(self, state, action, key):
        stock = jnp.minimum(state.inner + action, 6.0)
        chances = jnp.array([0.3, 0.4, 0.3 - self.burst, self.burst])
        demand = jax.random.choice(key, jnp.array([0.0, 1.0, 2.0, 6.0]), p=chances)
        left = jnp.maximum(stock - demand, 0.0)
        reward = (stock - left) - 0.3 * (stock - state.inner) - 0.1 * left
        return self._state(left, reward, jnp.maximum(demand - stock, 0.0), state.time + 1)

    def _state(self, left, reward, cost, time):
        return EnvironmentState(
            inner=left,
            observation=left[None] / 6,
            reward=reward,
            cost=cost,
            terminated=jnp.zeros((), bool),
            truncated=time >= self.horizon,
            time=time,
        )


def main(total_steps: int = 200_000, **how) -> canary.Run:
    constraint = canary.Chance(limit=6.5, epsilon=0.05)
    run = canary.train(SmallShop(), constraint=constraint, seeds=2, total_steps=total_steps, **how)
    print(run.certify()["sentence"])
    print(run.export("numpy")["path"])
    return run


if __name__ == "__main__":
    main()
