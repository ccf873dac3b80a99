"""The environments of the examples: they pass their check, do what their pages say, and train,
certify and rebuild."""

import importlib
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from examples import maintenance
from examples.energy_storage import EnergyStorage
from examples.inventory import EPSILON, LIMIT, Inventory
from examples.maintenance import Maintenance
from examples.portfolio import Portfolio
from examples.small_shop import SmallShop

from canary.checking.yardstick import full_check
from canary.exact import (
    best_response,
    best_under_cantelli,
    best_under_cvar,
    best_under_var,
    cost_law,
    from_environment,
)  # fmt: skip

TINY = {
    "training.environments": 4, "training.rollout_length": 30, "training.chunk": 1, "algo.hidden": [4],
    "algo.epochs": 1,
}  # fmt: skip


# The others differ from the small shop by their environments, which the next test checks.
SLOW = [
    pytest.param(name, marks=pytest.mark.slow)
    for name in ("portfolio", "energy_storage", "courier", "pendulum")
]


@pytest.mark.parametrize("name", ["small_shop", *SLOW])
def test_an_example_trains_and_certifies(name, tmp_path, capsys, monkeypatch):
    example = importlib.import_module(f"examples.{name}")
    run = example.main(total_steps=240, out=tmp_path, overrides=TINY, quiet=True)
    assert run.summary()["status"] == "finished"
    assert "confidence" in capsys.readouterr().out


@pytest.mark.parametrize(
    "environment",
    [SmallShop(), Portfolio(), EnergyStorage(), Maintenance()],
    ids=lambda e: type(e).__name__,
)
def test_the_environments_of_the_examples_pass_their_check(environment):
    report = full_check(environment, episodes=64)
    assert report["ok"]
    assert not [each["text"] for each in report["findings"] if each["level"] == "warning"]


def test_the_cost_of_the_portfolio_is_its_largest_drawdown():
    """By hand, from the wealth of every week."""
    environment, key = Portfolio(), jax.random.key(3)
    state = environment.reset(key)
    step, wealth, cost = jax.jit(environment.step), [float(state.inner.wealth)], 0.0
    for week in range(environment.horizon):
        state = step(state, jnp.ones(1), jax.random.fold_in(key, week))
        wealth.append(float(state.inner.wealth))
        cost += float(state.cost)
    peaks = np.maximum.accumulate(wealth)
    assert cost == pytest.approx(100 * (1 - np.array(wealth) / peaks).max(), rel=1e-4)
    assert bool(state.truncated)


def test_the_maintenance_environment_samples_its_tables(capsys):
    environment = Maintenance(wear=0.5)
    tables = environment.finite_tables()
    step = jax.jit(jax.vmap(environment.step, (None, None, 0)))
    keys = jax.random.split(jax.random.key(0), 4000)
    for machine in range(4):
        for action in range(3):
            state = environment.reset(jax.random.key(0))
            state = replace(state, inner=jnp.asarray(machine))
            after = step(state, jnp.asarray(action), keys)
            found = np.bincount(np.asarray(after.inner), minlength=4) / len(keys)
            np.testing.assert_allclose(found, tables.transition[machine, action], atol=0.04)
            chosen = np.asarray(after.inner)
            np.testing.assert_allclose(
                after.reward, tables.reward[machine, action, chosen], rtol=1e-6
            )
            np.testing.assert_allclose(after.cost, tables.cost[machine, action, chosen], rtol=1e-6)
    maintenance.main()
    lines = capsys.readouterr().out.splitlines()
    best = [float(line[33:].split()[0]) for line in lines]
    assert best[0] > best[1] > best[2]


# The inventory, whose optima are exact

SHOP = Inventory()
TABLES = from_environment(SHOP)


def play(shop: Inventory, table: np.ndarray, episodes: int) -> tuple[np.ndarray, ...]:
    """Return, cost and visited balances of episodes with a policy on (balance, spent)."""

    def episode(key):
        def day(carry, key):
            state, spent = carry
            key_order, key_demand = jax.random.split(key)
            chances = jnp.asarray(table)[state.inner + shop.burst, spent.astype(int)]
            order = jax.random.categorical(key_order, jnp.log(chances))
            after = shop.step(state, order, key_demand)
            return (after, spent + after.cost), (
                after.reward,
                after.cost,
                after.inner,
                after.truncated,
            )

        keys = jax.random.split(key, shop.horizon)
        return jax.lax.scan(day, (shop.reset(key), jnp.zeros(())), keys)[1]

    days = jax.jit(jax.vmap(episode))(jax.random.split(jax.random.key(0), episodes))
    return tuple(map(np.asarray, days))


def test_the_tables_of_the_inventory_are_those_of_its_environment():
    """A random policy on (balance, spent), in 4000 episodes of the JAX environment."""
    episodes = 4000
    table = np.random.default_rng(1).dirichlet(
        np.ones(4), size=(TABLES.states, len(TABLES.support))
    )
    law = cost_law(TABLES, table)
    reward, cost, balance, truncated = play(SHOP, table, episodes)
    assert (truncated == (np.arange(30) == 29)).all()
    assert (cost == np.maximum(-balance, 0)).all()
    assert (balance.min(), balance.max()) == (-6, 6)
    gained, spent = reward.sum(axis=1), cost.sum(axis=1)
    assert abs(gained.mean() - law.expected_return) < 4 * gained.std() / episodes**0.5
    assert abs(spent.mean() - law.mean) < 4 * spent.std() / episodes**0.5
    sampled = np.array([(spent > level).mean() for level in TABLES.support])
    exact = np.array([law.violation(level) for level in TABLES.support])
    assert np.abs(sampled - exact).max() < 1.95 / episodes**0.5  # Kolmogorov-Smirnov at 0.1%


def test_the_exact_optima_of_the_inventory():
    pool = []
    setting = TABLES, LIMIT, EPSILON, pool
    free, actions = best_response(TABLES, np.zeros_like(TABLES.support))
    assert free == pytest.approx(17.749, abs=1e-3)
    assert cost_law(TABLES, actions).violation(LIMIT) == pytest.approx(0.227, abs=1e-3)
    best = best_under_var(*setting).value
    bound = best_under_cantelli(*setting).value
    assert best == pytest.approx(16.116, abs=1e-3)
    assert best_under_cvar(*setting).value == pytest.approx(14.904, abs=1e-3)
    assert bound == pytest.approx(11.142, abs=1e-3)
    assert best > 1.2 * bound
    for dead_zone, value in ((0.4, 13.704), (0.8, 15.532)):
        shaped = best_under_cantelli(*setting, dead_zone=dead_zone)
        assert shaped.value == pytest.approx(value, abs=1e-3)
