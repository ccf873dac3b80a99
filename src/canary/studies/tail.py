"""The paper's remark on Gaussian tails (rem:gaussian): what a Gaussian with the same two moments
would predict.

Per seed, over the second half of training: z = (l - mu) / sigma of the episode costs, the Gaussian
probability of a violation, and how many orders of magnitude it falls short of what happened.
"""

from pathlib import Path
from statistics import median
from typing import Any

import polars as pl

from canary.numerics.gaussian_tail import gaussian_tail
from canary.studies.cells import (
    ABOUT_FINAL,
    FINAL_COLUMNS,
    final_cells,
    final_numbers,
    probability,
)
from canary.studies.page import paths_of, write_data, write_page
from canary.studies.rows import Row

SCHEMA = {
    "variant": pl.String, "environment": pl.String, "seed": pl.Int64, "z": pl.Float64,
    "log10_predicted": pl.Float64, "violation": pl.Float64, "orders_short": pl.Float64,
}  # fmt: skip


def save(
    results: Path, study: dict[str, Any], rows: list[Row], problems: list[str]
) -> dict[str, Path]:
    """Write table.md and table.csv (a line per seed)."""
    seeds = {row.name: per_seed(row) for row in rows}
    write_data(results, pl.DataFrame([seed for found in seeds.values() for seed in found], SCHEMA))
    write_page(
        results,
        study,
        "Medians over seeds, second half of training; a seed without violations has "
        "no\nunderstatement.\n"
        "The paper: z = 6.1 on EcoAnt and 5.0 on PointGoal, where a Gaussian is short by 6 and 4 "
        f"orders of magnitude.\n{ABOUT_FINAL}",
        (
            "row",
            "z",
            "Gaussian prediction",
            "realised P",
            "short by, orders of magnitude",
            "seeds",
            *FINAL_COLUMNS[:3],
        ),
        [
            (*_cells(row.name, seeds[row.name]), *final_cells(final_numbers(row))[:3])
            for row in rows
        ],
        problems,
    )
    return paths_of(results)


def _cells(name: str, seeds: list[dict[str, Any]]) -> tuple[str, ...]:
    if not seeds:
        return name, "-", "-", "-", "-", "0"
    z, predicted, realised = (
        median(seed[key] for seed in seeds) for key in ("z", "log10_predicted", "violation")
    )
    short = [seed["orders_short"] for seed in seeds if seed["orders_short"] is not None]
    orders = f"{median(short):.1f} ({len(short)} of {len(seeds)} seeds)" if short else "-"
    return name, f"{z:.2f}", f"1e{predicted:.1f}", probability(realised), orders, str(len(seeds))


def per_seed(row: Row) -> list[dict[str, Any]]:
    summary = row.summary
    found = []
    columns = ("seed_ids", "cost_per_seed", "cost_deviation_per_seed", "violation_per_seed")
    for seed, mean, deviation, violation in zip(*(summary[name] for name in columns), strict=True):
        if None in (mean, deviation, violation):
            continue
        tail = gaussian_tail(mean, deviation, summary["limit"], violation)
        found.append(
            {
                "variant": row.name,
                "environment": summary["env"],
                "seed": seed,
                "z": tail.deviations,
                "log10_predicted": tail.log10_predicted,
                "violation": violation,
                "orders_short": tail.log10_understatement if violation > 0 else None,
            }
        )
    return found
