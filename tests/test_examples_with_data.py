"""The examples that read the data of other packages (`pip install --no-deps simglucose arch`)."""

import importlib
import sys
from importlib.util import find_spec
from types import ModuleType, SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from examples import drawdown, glucose
from examples.drawdown import Drawdown, history
from examples.glucose import Glucose, Mouth, minute, patients

from canary.checking.yardstick import full_check
from tiny_runs import TINY

needs_simglucose = pytest.mark.skipif(not find_spec("simglucose"), reason="no simglucose")
needs_arch = pytest.mark.skipif(not find_spec("arch"), reason="no arch")


@pytest.mark.parametrize(
    "make",
    [pytest.param(Glucose, marks=needs_simglucose), pytest.param(Drawdown, marks=needs_arch)],
)
def test_they_pass_their_check(make):
    report = full_check(make(), episodes=32)
    assert report["ok"]
    assert not [each["text"] for each in report["findings"] if each["level"] == "warning"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "make",
    [pytest.param(Glucose, marks=needs_simglucose), pytest.param(Drawdown, marks=needs_arch)],
)
def test_they_train(make, tmp_path, capsys):
    how = {"total_steps": 240, "out": tmp_path, "overrides": TINY, "quiet": True}
    glucose.main(others="16", **how) if make is Glucose else drawdown.main(**how)
    assert "changed settings" in capsys.readouterr().out


@pytest.fixture
def published(monkeypatch):
    """simglucose's own patient, without the packages that its equations do not use."""
    package = ModuleType("simglucose")
    package.__spec__ = find_spec("simglucose")
    package.__path__ = package.__spec__.submodule_search_locations
    resources = SimpleNamespace(resource_filename=lambda *names: "")
    absent = {"simglucose": package, "pandas": ModuleType("pandas"), "pkg_resources": resources}
    for name, module in absent.items():
        monkeypatch.setitem(sys.modules, name, module)
    yield importlib.import_module("simglucose.patient.t1dpatient")
    for name in [name for name in sys.modules if name.startswith("simglucose.")]:
        monkeypatch.delitem(sys.modules, name)


@needs_simglucose
@pytest.mark.parametrize("patient", [1, 26])
def test_the_body_is_that_of_simglucose(patient, published):
    """A day of meals, one of them during the digestion of another, with boluses and too little
    insulin at night, by its adaptive solver."""
    p = {name: values[patient - 1] for name, values in patients().items()}
    basal = p["u2ss"] * p["BW"] / 6000
    meals = np.zeros(1440)
    meals[[200, 460, 475, 900]] = 45, 70, 10, 80
    rate = np.ones(1440)
    rate[205:230], rate[465:500], rate[1000:] = 16, 16, 0.3
    theirs = published.T1DPatient(SimpleNamespace(Name="", **p), init_state=p["start"].copy())
    expected = np.empty((1440, 13))
    for now in range(1440):
        theirs.step(published.Action(CHO=meals[now], insulin=basal * rate[now]))
        expected[now] = theirs.state

    def step(carry, inputs):
        carry = minute(*carry, constants, inputs[0], inputs[1] * p["u2ss"])
        return carry, carry[0]

    constants = {name: jnp.float32(value) for name, value in p.items() if name != "start"}
    zero = jnp.zeros(())
    start = jnp.asarray(p["start"], jnp.float32), Mouth(zero, jnp.zeros((), bool), zero, zero)
    inputs = jnp.asarray(np.stack([meals, rate], axis=1), jnp.float32)
    body = np.asarray(jax.jit(lambda: jax.lax.scan(step, start, inputs)[1])())
    levels = expected[:, [3, 12]] / p["Vg"]
    assert np.ptp(levels) > 100
    np.testing.assert_allclose(body[:, [3, 12]] / p["Vg"], levels, atol=0.5)  # mg/dL
    np.testing.assert_allclose(body, expected, atol=0.01 * np.abs(expected).max(axis=0).max())


@needs_arch
def test_years_of_the_bootstrap():
    """Training and held-out days are disjoint, runs are as long as they say, and wealth, reward and
    cost agree with the returns."""
    assert [len(history(0, held_out)) for held_out in (0, 1)] == [3772, 1258]
    environment, returns = Drawdown(run_length=5.0, fee=0.001), history(0, 0)

    def year(key):
        def week(state, key):
            after = environment.step(state, jax.random.uniform(key, (1,), minval=-1), key)
            return after, (after.inner.share, state.inner.day, after.reward, after.cost)

        keys = jax.random.split(jax.random.fold_in(key, 1), environment.horizon)
        return jax.lax.scan(week, environment.reset(key), keys)[1]

    years = jax.jit(jax.vmap(year))(jax.random.split(jax.random.key(0), 64))
    share, day, reward, cost = jax.tree.map(np.asarray, years)
    assert (day[:, 1:] != day[:, :-1] + 5).mean() == pytest.approx(1 / 5, rel=0.15)
    before = np.pad(share, ((0, 0), (1, 0)))[:, :-1]
    growth = 1 + share[..., None] * returns[(day[..., None] + np.arange(5)) % len(returns)]
    growth[..., 0] *= 1 - 0.001 * np.abs(share - before)
    wealth = np.cumprod(np.pad(growth.reshape(64, -1), ((0, 0), (1, 0)), constant_values=1), axis=1)
    fallen = 100 * (1 - wealth / np.maximum.accumulate(wealth, axis=1))
    np.testing.assert_allclose(cost.sum(1), fallen.max(1), rtol=1e-3)
    np.testing.assert_allclose(reward.sum(1), 100 * np.log(wealth[:, -1]), atol=1e-2)
