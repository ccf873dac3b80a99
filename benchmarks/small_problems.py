"""Five small problems, trained with untouched settings: do they end within their limit?

    python -m benchmarks.small_problems                                       5 seeds of each
    canary train --env benchmarks.small_problems:Queue

In each of them a constant action satisfies P(cost > limit) <= epsilon and earns little:

    Storage      a battery trades on the grid and serves a house when the grid fails    always buy
    Queue        servers cost money, waiting customers cost patience                    all servers
    TwoProducts  a shop with two products and rare bursts of demand for both            order much
    Shop         the shop of examples/inventory.py                                      order much
    Bursts       the same with a limit of half a burst                                  order much
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from examples.inventory import EPSILON, LIMIT, Inventory

import canary
from canary import Discrete, EnvironmentState


def _state(inner, observation, reward, cost, time, horizon):
    return EnvironmentState(
        inner=inner, observation=observation, reward=reward, cost=cost,
        terminated=jnp.zeros((), bool), truncated=time >= horizon, time=time,
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Storage:
    """Sell, hold or buy a unit each quarter of an hour; the cost is unserved demand."""

    horizon: int = 96
    capacity: float = 8.0
    failure: float = 0.01
    repair: float = 0.25

    observation_size = 3
    normalise_observation = False
    action_space = Discrete(3)
    default_constraint = canary.Chance(limit=3.5, epsilon=0.05)
    constant_action = 2

    def reset(self, key):
        inner = jnp.array(self.capacity), jnp.zeros((), bool)
        return self._now(inner, jnp.zeros(()), jnp.zeros(()), jnp.zeros((), jnp.int32))

    def step(self, state, action, key):
        charge, failing = state.inner
        wish = jnp.where(failing, 0.0, action - 1.0)
        charge_after = jnp.clip(charge + wish, 0, self.capacity)
        served = jnp.where(failing, jnp.minimum(charge_after, 1.0), 0.0)
        cost = jnp.where(failing, 1.0 - served, 0.0)
        reward = (charge - charge_after) * self._price(state.time) - 0.01 * jnp.abs(wish)
        change = jax.random.uniform(key)
        failing = jnp.where(failing, change > self.repair, change < self.failure)
        return self._now((charge_after - served, failing), reward, cost, state.time + 1)

    def _price(self, time):
        return 1.0 + 0.5 * jnp.sin(2 * jnp.pi * time / 48)

    def _now(self, inner, reward, cost, time):
        charge, failing = inner
        observation = jnp.array([charge / self.capacity, failing, self._price(time) - 1.0])
        return _state(inner, observation, reward, cost, time, self.horizon)


@dataclass(frozen=True, kw_only=True)
class Queue:
    """Open 0 to 3 servers each minute; the cost counts who waits in a line of more than 5."""

    horizon: int = 120

    observation_size = 2
    normalise_observation = False
    action_space = Discrete(4)
    default_constraint = canary.Chance(limit=40.0, epsilon=0.05)
    constant_action = 3

    def reset(self, key):
        inner = jnp.zeros(()), jnp.zeros((), bool)
        return self._now(inner, jnp.zeros(()), jnp.zeros(()), jnp.zeros((), jnp.int32))

    def step(self, state, action, key):
        line, rush = state.inner
        arrive, change = jax.random.split(key)
        arrivals = jax.random.binomial(arrive, 4, jnp.where(rush, 0.65, 0.2))
        line = jnp.minimum(jnp.maximum(line + arrivals - action, 0.0), 30.0)
        rush = jax.random.uniform(change) < jnp.where(rush, 0.9, 0.02)
        cost = jnp.maximum(line - 5.0, 0.0)
        return self._now((line, rush), -0.1 * action, cost, state.time + 1)

    def _now(self, inner, reward, cost, time):
        line, rush = inner
        observation = jnp.array([line / 10, rush])
        return _state(inner, observation, jnp.asarray(reward, float), cost, time, self.horizon)


@dataclass(frozen=True, kw_only=True)
class TwoProducts:
    """Order 0 to 2 units of each product a day; the cost is unmet demand."""

    horizon: int = 30
    capacity: float = 6.0
    burst: float = 0.02

    observation_size = 2
    normalise_observation = False
    action_space = Discrete(9)
    default_constraint = canary.Chance(limit=6.5, epsilon=0.05)
    constant_action = 8

    def reset(self, key):
        stock = jnp.full(2, self.capacity)
        return self._now(stock, jnp.zeros(()), jnp.zeros(()), jnp.zeros((), jnp.int32))

    def step(self, state, action, key):
        usual, burst = jax.random.split(key)
        order = jnp.stack([action // 3, action % 3]).astype(float)
        stock = jnp.minimum(state.inner + order, self.capacity)
        demand = jax.random.randint(usual, (2,), 0, 3).astype(float)
        demand = jnp.where(jax.random.uniform(burst) < self.burst, 5.0, demand)
        left = jnp.maximum(stock - demand, 0.0)
        bought, sold = stock - state.inner, stock - left
        reward = jnp.sum(sold - 0.4 * bought - jnp.array([0.1, 0.15]) * left)
        return self._now(left, reward, jnp.sum(jnp.maximum(demand - stock, 0.0)), state.time + 1)

    def _now(self, stock, reward, cost, time):
        return _state(stock, stock / self.capacity, reward, cost, time, self.horizon)


@dataclass(frozen=True, kw_only=True)
class Shop(Inventory):
    """The best policy with P(cost > limit) <= epsilon earns 16.12 (results/inventory)."""

    default_constraint = canary.Chance(limit=LIMIT, epsilon=EPSILON)
    constant_action = 3


@dataclass(frozen=True, kw_only=True)
class Bursts(Inventory):
    """A burst that finds less than half of a full shop violates the limit."""

    default_constraint = canary.Chance(limit=3.5, epsilon=0.05)
    constant_action = 3


def constant(environment, episodes: int = 2000) -> tuple[float, float]:
    """P(cost > limit) and J of the constant action."""

    def play(key):
        start, steps = jax.random.split(key)

        def step(state, key):
            state = environment.step(state, jnp.asarray(environment.constant_action), key)
            return state, (state.reward, state.cost)

        keys = jax.random.split(steps, environment.horizon)
        return jax.lax.scan(step, environment.reset(start), keys)[1]

    rewards, costs = jax.jit(jax.vmap(play))(jax.random.split(jax.random.key(0), episodes))
    limit = environment.default_constraint.limit
    return float(np.mean(costs.sum(1) > limit)), float(rewards.sum(1).mean())


def main(total_steps: int = 400_000, seeds=5, **how) -> None:
    print("problem      constant P    J   | trained: largest P of a seed, P, J (second half)")
    for environment in (Storage(), Queue(), TwoProducts(), Shop(), Bursts()):
        risk, earned = constant(environment)
        run = canary.train(environment, seeds=seeds, total_steps=total_steps, **how)
        found = run.summary()
        print(
            f"{type(environment).__name__:12} {risk:8.3f} {earned:6.1f} |"
            f" {max(p or 0.0 for p in found['violation_per_seed']):.3f} {found['violation_probability']:.3f}"
            f" {found['return_mean']:.1f}"
        )


if __name__ == "__main__":
    main()
