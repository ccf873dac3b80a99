"""The noise of constraint estimates: exact and measured points, their table and figure."""

import jax
import jax.numpy as jnp
import numpy as np
import polars as pl
import pytest

from canary.environments.icy_lake import IcyLake
from canary.errors import CanaryError
from canary.exact import cost_law, from_environment
from canary.studies import store
from canary.studies.catalogue import ALL_STUDIES
from canary.studies.paper import estimators, relative_variance
from canary.studies.paper.relative_variance import GAE_LIMITS, exponent, measured
from canary.studies.runner import Places, Request, reproduce
from canary.studies.table import save_views
from canary.theory import with_violation


def test_a_relative_variance_by_hand_and_of_simulated_batches():
    """Means (2, 1), variances 1 and 1 over three batches: 2 / (5 - 2/3)."""

    def kappa(value, gradient):
        found = measured({"value": value, "gradient": gradient, "episodes": np.full(3, 200)})
        return found["value"], found["gradient"]

    samples = np.array([[1.0, 0.0], [2.0, 1.0], [3.0, 2.0]])
    assert kappa(np.array([1.0, -1.0]), samples) == (None, pytest.approx(2 * 2 / (5 - 2 / 3)))
    samples = np.random.default_rng(0).normal([1.0, 2.0, 0.0], [1.0, 3.0, 2.0], (20_000, 3))
    assert kappa(samples[:, 1], samples) == pytest.approx((2 * 9 / 4, 2 * 14 / 5), rel=0.05)


@pytest.mark.slow
def test_batches_of_the_algorithms_own_estimate(monkeypatch):
    """A network imitates the policy, and the mean of the values over batches is the truth."""
    monkeypatch.setattr(estimators, "FITTING", 1)
    monkeypatch.setattr(estimators, "MEASURING", 12)
    lake = from_environment(IcyLake())
    policy = estimators.imitate(with_violation(lake, 5.5, 0.05), jax.random.key(0))
    chance = np.asarray(jax.nn.softmax(policy(jnp.eye(16)).logits), float)
    p = cost_law(lake, chance).violation(5.5)
    assert p == pytest.approx(0.05, rel=0.05)
    found = estimators.batches("indicator", None)(policy, 5.5, 0.1, 3)
    episodes = found["episodes"].sum()
    assert episodes > 300
    mean = found["value"] @ found["episodes"] / episodes
    assert mean == pytest.approx(p - 0.1, abs=4 * np.sqrt(p / episodes))
    assert found["gradient"].shape[0] == 12
    assert np.isfinite(found["gradient"]).all()
    assert found["gradient"].std(0).max() > 0


@pytest.mark.slow
def test_the_priced_estimate_points_where_the_plain_one_does(monkeypatch):
    """With less noise, on a longer lake too; the same episodes serve both."""
    monkeypatch.setattr(estimators, "FITTING", 10)
    monkeypatch.setattr(estimators, "MEASURING", 30)
    lake = IcyLake(horizon=200)
    policy = estimators.imitate(
        with_violation(from_environment(lake), 5.5, 0.05), jax.random.key(0)
    )
    found = [
        estimators.batches(constraint, 0.6, lake)(policy, 5.5, 0.1, 3)
        for constraint in ("priced", "cantelli")
    ]
    priced, plain = (one["gradient"].mean(0) for one in found)
    assert priced @ plain > 0.4 * np.linalg.norm(priced) * np.linalg.norm(plain)
    assert measured(found[0])["gradient"] < measured(found[1])["gradient"]


def test_points_are_kept_one_by_one_and_never_computed_twice(tmp_path, monkeypatch):
    """Points with critics cost minutes: here they are made up, and counted."""
    asked = []

    def batches(constraint, dead_zone, lake):
        def run(network, limit, epsilon, seed):
            asked.append((limit, seed))
            gradient = np.array([[1.0], [1.0 + (8 / epsilon) ** 0.5]])
            return {"value": gradient[:, 0], "gradient": gradient, "episodes": np.full(2, 90)}

        return run

    monkeypatch.setattr(estimators, "batches", batches)
    monkeypatch.setattr(estimators, "imitate", lambda policy, key: None)
    monkeypatch.setattr(relative_variance, "measured", lambda found: {
        "value": 0.1, "gradient": found["gradient"].var(), "episodes": 90.0,
    })  # fmt: skip
    study, places = ALL_STUDIES["relative-variance"], Places(runs=tmp_path, results=tmp_path)

    def points(*seeds):
        request = Request(seeds=seeds, only=("indicator", "cantelli"))
        return reproduce("rv", study, places, request, quiet=True)

    points(1)
    assert len(asked) == 2 * len(GAE_LIMITS)
    path = tmp_path / "rv" / "points.json"
    before = path.read_bytes()
    points(1)
    assert path.read_bytes() == before
    points(1, 2)
    assert len(asked) == 4 * len(GAE_LIMITS)
    points = store.read_sealed(path)["points"]
    lost = next(point for point in points if point["constraint"] == "cantelli")
    lost["gradient"] = None  # a signal that was lost in the noise
    store.write_sealed(path, {"points": points})
    paths = save_views(tmp_path / "rv")
    data = pl.DataFrame(points, infer_schema_length=None)
    assert exponent(data, "gae", "indicator", "gradient")[0] == pytest.approx(-1)
    assert exponent(data, "monte-carlo", "indicator", "value")[0] == pytest.approx(-1, abs=0.01)
    assert abs(exponent(data, "monte-carlo", "cantelli", "gradient")[0]) < 0.1
    assert "| cantelli |" in paths["table"].read_text()
    assert paths["figure"].stat().st_size > 10_000
    path.write_text(path.read_text().replace("90.0", "91.0"))
    with pytest.raises(CanaryError, match="damaged"):
        save_views(tmp_path / "rv")
