"""Whether the tables of a group are those that its summary describes; no JAX."""

import math
from pathlib import Path
from typing import Any

import polars as pl

from canary.errors import CanaryError
from canary.studies.store import read_table

# What the views read.
WHOLE, REAL, TRUTH = "whole numbers", "numbers", "true and false"
COLUMNS = {
    "episodes": {"seed": WHOLE, "iteration": WHOLE, "return": REAL, "cost": REAL, "valid": TRUTH},
    "metrics": {"seed": WHOLE, "iteration": WHOLE, "steps": WHOLE},
}
TOLERANCE = 1e-6  # a mean of the same numbers in another order


def check_tables(group: Path, config: dict[str, Any], summary: dict[str, Any]) -> set[int]:
    """The seeds that every table has; a sentence about one that is missing or of something else."""
    episodes = _read(group, "episodes")
    seeds = set(episodes["seed"].unique())
    # Older results had no table of metrics.
    if (group / "provenance.json").exists() or (group / "metrics.parquet").exists():
        metrics = _read(group, "metrics")
        seeds &= set(metrics["seed"].unique())
        _check_steps(group, metrics, summary)
    for seed in summary["seed_ids"]:
        if seed not in seeds:
            raise CanaryError(
                f"The tables in {group} have no row of seed {seed}, which its summary.json has; "
                "restore them."
            )
    _check_means(group, episodes, config, summary)
    return seeds


def _read(group: Path, kind: str) -> pl.DataFrame:
    """A table with the columns that the views read."""
    table, path = read_table(group, kind), group / f"{kind}.parquet"
    for name, expected in COLUMNS[kind].items():
        if name not in table.columns:
            raise CanaryError(
                f"{path} is no table of {kind} (it has no column {name!r}); restore it."
            )
        found = table.schema[name]
        fits = {
            WHOLE: found.is_integer(),
            REAL: found.is_numeric(),
            TRUTH: found == pl.Boolean,
        }[expected]
        if not fits:
            raise CanaryError(
                f"{path} is no table of {kind} (its column {name!r} does not hold {expected}); "
                "restore it."
            )
    return table


def _check_steps(group: Path, metrics: pl.DataFrame, summary: dict[str, Any]) -> None:
    ends = metrics.filter(pl.col("seed").is_in(summary["seed_ids"])).group_by("seed")
    for seed, end in ends.agg(pl.col("steps").max()).sort("seed").iter_rows():
        if end != summary["total_steps"]:
            raise CanaryError(
                f"{group / 'metrics.parquet'} is not what summary.json beside it describes (seed "
                f"{seed} ends after {end:,} steps, not {summary['total_steps']:,}); restore it."
            )


def _check_means(
    group: Path, episodes: pl.DataFrame, config: dict[str, Any], summary: dict[str, Any]
) -> None:
    """Return and cost of every seed over the second half are those of the summary."""
    training = config["training"]
    done = summary["total_steps"] // (training["environments"] * training["rollout_length"])
    rows = episodes.filter(
        pl.col("valid") & (pl.col("iteration") >= -(-done // 2)) & (pl.col("iteration") < done)
    )
    for name in ("return", "cost"):
        means = rows.group_by("seed").agg(pl.col(name).cast(pl.Float64).mean())
        found = dict(means.iter_rows())
        for seed, said in zip(summary["seed_ids"], summary[f"{name}_per_seed"], strict=True):
            mean = found.get(seed)
            mean = None if mean is None or not math.isfinite(mean) else mean
            if (mean is None) != (said is None) or (
                mean is not None
                and said is not None
                and abs(mean - said) > TOLERANCE * max(1.0, abs(said))
            ):
                raise CanaryError(
                    f"{group / 'episodes.parquet'} is not what summary.json beside it describes "
                    f"(the mean {name} of seed {seed} is {_shown(mean)}, not {_shown(said)}); "
                    "restore it."
                )


def _shown(value: float | None) -> str:
    return "not known" if value is None else f"{value:.6g}"
