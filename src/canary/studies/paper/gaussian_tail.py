"""The paper's remark on Gaussian tails (rem:gaussian): what a Gaussian with the same two moments
predicts.

Per seed, over the second half of training: z = (l - mu) / sigma of the episode costs, the Gaussian
probability of a violation, and by how many orders of magnitude it is too small.
"""

from statistics import median

import polars as pl

from canary.numerics.gaussian_tail import gaussian_tail
from canary.studies.page import Numbers, Page, Paths, Row
from canary.studies.table import ABOUT_FINAL, FINAL_COLUMNS, final_cells, final_numbers, probability

SCHEMA = {
    "row": pl.String, "environment": pl.String, "seed": pl.Int64, "z": pl.Float64,
    "log10_predicted": pl.Float64, "violation": pl.Float64, "orders_short": pl.Float64,
}  # fmt: skip


def save(page: Page) -> Paths:
    seeds = {row.name: tails(row) for row in page.shown}
    return page.table(
        "Medians over seeds, second half of training; a seed without violations has no "
        "understatement.\nThe paper: z = 6.1 on EcoAnt and 5.0 on PointGoal, where a Gaussian is "
        f"short by 6 and 4 orders of magnitude.\n{ABOUT_FINAL}",
        ("row", "z", "Gaussian prediction", "realised P", "short by, orders of magnitude", "seeds",
         *FINAL_COLUMNS[:3]),
        lambda row: [(*_cells(row, seeds[row.name]), *final_cells(final_numbers(row))[:3])],
        pl.DataFrame([seed for found in seeds.values() for seed in found], SCHEMA),
    )  # fmt: skip


def tails(row: Row) -> list[Numbers]:
    """The Gaussian tail of every seed that has episodes."""
    found = []
    for seed, one in row.seeds.items():
        mean, deviation, violation = (one[key] for key in ("cost", "cost_deviation", "violation"))
        if None in (mean, deviation, violation):
            continue
        tail = gaussian_tail(mean, deviation, row.limit, violation)
        found.append({
            "row": row.name, "environment": row.environment, "seed": seed, "z": tail.deviations,
            "log10_predicted": tail.log10_predicted, "violation": violation,
            "orders_short": tail.log10_understatement if violation > 0 else None,
        })  # fmt: skip
    return found


def _cells(row: Row, seeds: list[Numbers]) -> tuple[str, ...]:
    if not seeds:
        return row.name, "-", "-", "-", "-", "0"
    z, predicted, realised = (
        median(seed[key] for seed in seeds) for key in ("z", "log10_predicted", "violation")
    )
    short = [seed["orders_short"] for seed in seeds if seed["orders_short"] is not None]
    orders = f"{median(short):.1f} ({len(short)} of {len(seeds)} seeds)" if short else "-"
    return row.name, f"{z:.2f}", f"1e{predicted:.1f}", probability(realised), orders, str(len(seeds))  # fmt: skip
