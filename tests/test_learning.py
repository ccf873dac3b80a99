"""Learning at full size, several minutes: `make test-slow`."""

from pathlib import Path

import polars as pl
import pytest

from canary.config.config import RunConfig, make_config
from canary.runs.runner import new_run, train_run
from canary.runs.tables import read_table

LIMIT, EPSILON = 5.5, 0.02


def last_quarter(config: RunConfig, runs: Path) -> pl.DataFrame:
    """Mean return and violation rate of every seed over the last quarter of its updates."""
    assert (config.constraint.limit, config.constraint.epsilon) == (LIMIT, EPSILON)
    run = new_run(config, runs)
    train_run(run, config, quiet=True)
    episodes = read_table(run, "episodes").filter(pl.col("valid"))
    late = episodes.filter(pl.col("iteration") >= 0.75 * (pl.col("iteration").max() + 1))
    return late.group_by("seed").agg(
        pl.col("return").mean(), violation=(pl.col("cost") > LIMIT).mean()
    )


@pytest.mark.slow
def test_canary_learns_icy_lake_within_the_limit(tmp_path: Path):
    seeds = last_quarter(
        make_config("IcyLake", "canary", seeds=(0, 1, 2, 3), total_steps=400_000), tmp_path
    )
    good = seeds.filter((pl.col("violation") <= EPSILON) & (pl.col("return") >= 0.85))
    assert len(good) == 4, seeds
