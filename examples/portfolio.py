"""A portfolio with a limit on its largest drawdown: P(drawdown > 10%) <= 0.05 within a year of
weeks.

    python examples/portfolio.py
    canary train --env examples.portfolio:Portfolio --limit 10 --epsilon 0.05

Every week a share of the wealth is put into a risky asset, the rest is safe. Returns of the risky
asset have calm and stormy times (the market does not say which), and rare crashes. The reward is
the growth of the wealth in percent. The cost of a week is by how much the largest drawdown so far
grows, so the episode cost is the largest drawdown itself:

    drawdown_t = 100 (1 - wealth_t / largest wealth so far)       C = sum_t cost_t = max_t drawdown_t
"""

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp

import canary
from canary import Continuous, EnvironmentState


class Account(NamedTuple):
    wealth: jax.Array
    peak: jax.Array
    drawdown: jax.Array
    """The largest so far, in percent."""
    stormy: jax.Array
    last: jax.Array
    """The asset's last weekly return, in percent."""


@dataclass(frozen=True, kw_only=True)
class Portfolio:
    horizon: int = 52
    growth: float = 0.2
    """Mean weekly return of the risky asset in calm times, in percent."""
    calm: float = 1.0
    """Weekly deviation in calm times, in percent; stormy ones have three times that."""
    crash: float = 0.005
    """Weekly probability of a loss of 12%."""

    observation_size = 4
    normalise_observation = True
    action_space = Continuous(1)

    @property
    def default_constraint(self) -> canary.Chance:
        return canary.Chance(limit=10.0, epsilon=0.05)

    def reset(self, key):
        one, zero = jnp.ones(()), jnp.zeros(())
        stormy = jax.random.uniform(key) < 0.2
        return self._state(
            Account(one, one, zero, stormy, zero), zero, zero, jnp.zeros((), jnp.int32)
        )

    def step(self, state, action, key):
        before: Account = state.inner
        share = (jnp.clip(action[0], -1.0, 1.0) + 1) / 2
        key_noise, key_crash, key_turn = jax.random.split(key, 3)
        deviation = self.calm * jnp.where(before.stormy, 3.0, 1.0)
        mean = self.growth * jnp.where(before.stormy, -0.5, 1.0)
        market = mean + deviation * jax.random.normal(key_noise)
        market = jnp.where(jax.random.uniform(key_crash) < self.crash, market - 12.0, market)
        wealth = before.wealth * (1 + share * market / 100)
        peak = jnp.maximum(before.peak, wealth)
        drawdown = jnp.maximum(before.drawdown, 100 * (1 - wealth / peak))
        turns = jax.random.uniform(key_turn) < jnp.where(before.stormy, 0.2, 0.05)
        after = Account(wealth, peak, drawdown, before.stormy ^ turns, market)
        reward = 100 * (wealth - before.wealth)
        return self._state(after, reward, drawdown - before.drawdown, state.time + 1)

    def _state(self, account, reward, cost, time):
        fallen = 100 * (1 - account.wealth / account.peak)
        seen = jnp.stack([account.last, fallen, account.wealth, time / self.horizon])
        return EnvironmentState(
            inner=account,
            observation=seen,
            reward=reward,
            cost=cost,
            terminated=jnp.zeros((), bool),
            truncated=time >= self.horizon,
            time=time,
        )


def main(total_steps: int = 2_000_000, **how) -> canary.Run:
    run = canary.train(Portfolio(), seeds=2, total_steps=total_steps, **how)
    print(run.certify()["sentence"])
    print(run.export("numpy")["path"])
    return run


if __name__ == "__main__":
    main()
