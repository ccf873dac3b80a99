"""The environments of the examples: they pass their check, do what their pages say, and train,
certify and rebuild."""

import importlib
from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from examples import maintenance
from examples.energy_storage import EnergyStorage
from examples.maintenance import Maintenance
from examples.portfolio import Portfolio
from examples.small_shop import SmallShop

from canary.checking.check import full_check
from canary.environments import from_gymnasium

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
    if name == "pendulum":  # that processes of its own change no number is tested elsewhere
        monkeypatch.setattr(example, "from_gymnasium", partial(from_gymnasium, workers=0))
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
    assert report.ok
    assert not [finding.text for finding in report.findings if finding.level == "warning"]


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
