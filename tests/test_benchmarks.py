"""What the benchmarks measure."""

from functools import partial

import numpy as np
import polars as pl
from benchmarks import environment_speed, warm_start

from canary.environments.icy_lake import IcyLake


def test_it_measures_what_is_registered_and_the_engines(monkeypatch):
    monkeypatch.setattr(environment_speed, "ENVIRONMENTS", {"Lake": IcyLake})
    monkeypatch.setattr(environment_speed, "MANY", 4)
    monkeypatch.setattr(environment_speed, "FEW", 3)
    result = environment_speed.run(steps=3, mjx_steps=0)
    found = {(row["what"], row["environments"]) for row in result["measurements"]}
    assert found == {("Lake", 3), ("EcoAnt native", 4), ("bare mujoco.rollout loop", 4)}
    assert min(row["steps_per_second"] for row in result["measurements"]) > 0
    assert "native_to_mjx" not in result
    assert 0.01 < result["native_to_bare"] < 100


def test_a_seed_reaches_a_limit_once_it_is_safe_and_earns():
    """Two episodes per update: safe from update 60 on, and earning from update 100 on."""
    iteration = np.repeat(np.arange(200), 2)
    episodes = pl.DataFrame({
        "iteration": iteration, "valid": True,
        "cost": np.where(iteration < 60, 9.0, 1.0), "return": np.where(iteration < 100, 0.0, 1.0),
    })  # fmt: skip
    reach = partial(warm_start.steps_to_reach, episodes, epsilon=0.02, batch=10)
    assert reach(limit=5.0, reward=0.0) == (60 + 49) * 10  # the first 2 of 100 may violate
    assert reach(limit=5.0, reward=1.0) == (100 + 50) * 10
    assert reach(limit=5.0, reward=2.0) is None
