"""The environments of the examples pass their check, do what their pages say, and train."""

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
from tiny_runs import TINY

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
    [SmallShop(), Portfolio(), EnergyStorage(), Maintenance(), Inventory()],
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


SHOP = Inventory()


@pytest.mark.parametrize(
    ("environment", "first"), [(Maintenance(wear=0.5), 0), (SHOP, -SHOP.burst)], ids=["machine", "shop"]
)  # fmt: skip
def test_an_environment_samples_its_tables(environment, first):
    """Entry i of the tables is the state `first` + i."""
    tables = environment.finite_tables()
    step = jax.jit(jax.vmap(environment.step, (None, None, 0)))
    keys = jax.random.split(jax.random.key(0), 4000)
    start = environment.reset(keys[0])
    for state, action in np.ndindex(tables.transition.shape[:2]):
        after = step(replace(start, inner=jnp.asarray(first + state)), jnp.asarray(action), keys)
        place = np.asarray(after.inner) - first
        found = np.bincount(place, minlength=len(tables.initial)) / len(keys)
        np.testing.assert_allclose(found, tables.transition[state, action], atol=0.04)
        np.testing.assert_allclose(after.reward, tables.reward[state, action, place], rtol=1e-6)
        np.testing.assert_allclose(after.cost, tables.cost[state, action, place], rtol=1e-6)


def test_the_maintenance_example_prints_its_optima(capsys):
    maintenance.main()
    lines = capsys.readouterr().out.splitlines()
    best = [float(line[33:].split()[0]) for line in lines]
    assert best[0] > best[1] > best[2]


def test_the_exact_optima_of_the_inventory():
    tables = from_environment(SHOP)
    setting = tables, LIMIT, EPSILON, []
    free, actions = best_response(tables, np.zeros_like(tables.support))
    assert free == pytest.approx(17.749, abs=1e-3)
    assert cost_law(tables, actions).violation(LIMIT) == pytest.approx(0.227, abs=1e-3)
    best = best_under_var(*setting).value
    bound = best_under_cantelli(*setting).value
    assert best == pytest.approx(16.116, abs=1e-3)
    assert best_under_cvar(*setting).value == pytest.approx(14.904, abs=1e-3)
    assert bound == pytest.approx(11.142, abs=1e-3)
    assert best > 1.2 * bound
    for dead_zone, value in ((0.4, 13.704), (0.8, 15.532)):
        shaped = best_under_cantelli(*setting, dead_zone=dead_zone)
        assert shaped.value == pytest.approx(value, abs=1e-3)
