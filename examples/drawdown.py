"""How much of a portfolio to hold in shares: P(largest drawdown of a year > 20%) <= 0.05, on real
daily returns. A benchmark, not financial advice.

    pip install --no-deps arch
    canary train --env examples.drawdown:Drawdown --total-steps 1000000
    canary certify --shift held_out=1

Daily closes of the S&P 500 and the Nasdaq Composite, 1999 to 2018, are read from the package arch.
A year of 52 weeks is drawn by the stationary bootstrap (Politis and Romano 1994): runs of
consecutive weeks of random length, from 1999-2013 in training, from 2014-2018 if `held_out`. Runs
keep what makes drawdowns large: storms last, and falls come in them.

    reward = 100 log(wealth' / wealth), so that J is the growth of a year in log percent
    cost   = by how much the largest drawdown so far grows, so that its sum is the drawdown itself
"""

import csv
import gzip
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import canary
from canary import Continuous, EnvironmentState

INDICES = ("sp500", "nasdaq")
LAST_YEAR = 2013  # of training
WEEK, QUARTER = 5, 65  # days


@cache
def history(index: int, held_out: int) -> np.ndarray:
    """Daily returns of the index in the years of training, or in those after them."""
    package = find_spec("arch")
    if package is None or package.origin is None:
        raise canary.CanaryError(
            "The prices come with arch, which is not installed: pip install --no-deps arch"
        )
    name = INDICES[index]
    path = Path(package.origin).parent / "data" / name / f"{name}.csv.gz"
    with gzip.open(path, "rt") as file:
        rows = [(int(row["Date"][-4:]), float(row["Adj Close"])) for row in csv.DictReader(file)]
    years, closes = (np.array(column) for column in zip(*rows, strict=True))
    returns = closes[1:] / closes[:-1] - 1
    return returns[(years[1:] > LAST_YEAR) == bool(held_out)].astype(np.float32)


class Market(NamedTuple):
    day: jax.Array
    """The next one, in the history."""
    recent: jax.Array
    """Returns of the last quarter, the newest last."""
    share: jax.Array
    """Of the wealth that is in shares."""
    wealth: jax.Array
    peak: jax.Array
    drawdown: jax.Array
    """The largest so far, in percent."""


@dataclass(frozen=True, kw_only=True)
class Drawdown:
    index: int = 0
    """0: S&P 500, 1: Nasdaq Composite."""
    held_out: int = 0
    """0: days of 1999-2013, 1: days of 2014-2018."""
    run_length: float = 13.0
    """Mean length of the runs of consecutive weeks."""
    fee: float = 0.0002
    """Share of what is bought or sold."""

    horizon = 52
    observation_size = 5
    normalise_observation = True
    action_space = Continuous(1)
    largest_step_cost = 100.0

    def __post_init__(self):
        if self.index not in (0, 1) or self.held_out not in (0, 1):
            raise canary.CanaryError("index and held_out must be 0 or 1.")
        history(self.index, self.held_out)

    @property
    def default_constraint(self) -> canary.Chance:
        return canary.Chance(limit=20.0, epsilon=0.05)

    def reset(self, key):
        """The quarter before the year is known."""
        day = self._any_day(key)
        recent = self._returns(day - QUARTER, QUARTER)
        zero, one = jnp.zeros(()), jnp.ones(())
        market = Market(day, recent, zero, one, one, zero)
        return self._state(market, zero, zero, jnp.zeros((), jnp.int32))

    def step(self, state, action, key):
        before: Market = state.inner
        share = (1 + jnp.clip(action[0], -1.0, 1.0)) / 2
        week = self._returns(before.day, WEEK)
        traded = 1 - self.fee * jnp.abs(share - before.share)
        wealth = before.wealth * traded * jnp.cumprod(1 + share * week)  # after each day
        peak = jnp.maximum(before.peak, jax.lax.cummax(wealth))
        drawdown = jnp.maximum(before.drawdown, 100 * (1 - wealth / peak).max())
        key_jump, key_day = jax.random.split(key)
        jumps = jax.random.uniform(key_jump) * self.run_length < 1
        after = Market(
            day=jnp.where(jumps, self._any_day(key_day), before.day + WEEK),
            recent=jnp.concatenate([before.recent[WEEK:], week]),
            share=share,
            wealth=wealth[-1],
            peak=peak[-1],
            drawdown=drawdown,
        )
        reward = 100 * jnp.log(after.wealth / before.wealth)
        return self._state(after, reward, drawdown - before.drawdown, state.time + 1)

    def _any_day(self, key):
        return jax.random.randint(key, (), 0, len(history(self.index, self.held_out)))

    def _returns(self, day, days):
        """So many from this day on; after the last day comes the first."""
        returns = jnp.asarray(history(self.index, self.held_out))
        return returns[(day + jnp.arange(days)) % len(returns)]

    def _state(self, market, reward, cost, time):
        percent = 100 * market.recent
        fallen = 100 * (1 - market.wealth / market.peak)
        seen = [
            jnp.log(percent[-2 * WEEK :].std() + 0.01),
            jnp.log(percent.std() + 0.01),
            percent.mean(),
            fallen,
            market.share,
        ]
        return EnvironmentState(
            inner=market,
            observation=jnp.stack(seen),
            reward=reward,
            cost=cost,
            terminated=jnp.zeros((), bool),
            truncated=time >= self.horizon,
            time=time,
        )


def main(total_steps: int = 1_000_000, **how) -> canary.Run:
    run = canary.train(Drawdown(), seeds=2, total_steps=total_steps, **how)
    print(run.certify(shift="held_out=1")["sentence"])
    return run


if __name__ == "__main__":
    main()
