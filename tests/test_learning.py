"""Learning at full size, several minutes: `make test-slow`."""

from pathlib import Path

import polars as pl
import pytest

from canary.experiments import storage
from canary.experiments.config import make_config
from canary.experiments.runner import start_run

LIMIT, EPSILON = 5.5, 0.02


@pytest.mark.slow
def test_canary_learns_icy_lake_within_the_limit(tmp_path: Path):
    """At least 3 of 4 seeds: violation probability <= 0.05 and mean return >= 0.8 over the last quarter of 400k steps."""
    config = make_config("IcyLake", "canary", preset="fast", seeds=(0, 1, 2, 3), total_steps=400_000)
    assert (config.constraint.limit, config.constraint.epsilon) == (LIMIT, EPSILON)
    run = start_run(config, tmp_path, quiet=True)

    late = storage.read(run, "episodes").filter(pl.col("valid") & (pl.col("iteration") >= 300))
    seeds = late.group_by("seed").agg(pl.col("return").mean(), violation=(pl.col("cost") > LIMIT).mean())
    good = seeds.filter((pl.col("violation") <= 0.05) & (pl.col("return") >= 0.8))
    assert len(seeds) == 4
    assert len(good) >= 3, seeds
