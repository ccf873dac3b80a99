"""The paper's remark on Gaussian tails (rem:gaussian): what a Gaussian with the same two moments would predict.

Per seed, over the second half of training: z = (l - mu) / sigma of the episode costs, the Gaussian probability of a violation,
and how many orders of magnitude it falls short of what happened.
"""

from pathlib import Path
from statistics import median
from typing import Any

import polars as pl

from canary.numerics.gaussian_tail import gaussian_tail
from canary.studies.rows import Row


def save(results: Path, study: dict[str, Any], rows: list[Row], problems: list[str]) -> dict[str, Path]:
    """Write table.md and table.csv (a line per seed)."""
    seeds = [seed for row in rows for seed in per_seed(row)]
    paths = {"table": results / "table.md", "data": results / "table.csv"}
    pl.DataFrame(seeds, infer_schema_length=None).write_csv(paths["data"])
    lines = [
        f"# {study['title']}",
        "",
        f"`canary reproduce {study['name']}`. Medians over seeds, second half of training; a seed without violations has no",
        "understatement.",
        "The paper: z = 6.1 on EcoAnt and 5.0 on PointGoal, where a Gaussian is short by 6 and 4 orders of magnitude.",
        "",
        "| row | z | Gaussian prediction | realised P | short by, orders of magnitude | seeds |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows:
        here = [seed for seed in seeds if seed["variant"] == row.name]
        short = [seed["orders_short"] for seed in here if seed["orders_short"] is not None]
        z = median(seed["z"] for seed in here)
        predicted = median(seed["log10_predicted"] for seed in here)
        realised = median(seed["violation"] for seed in here)
        orders = f"{median(short):.1f} ({len(short)} of {len(here)} seeds)" if short else "-"
        lines.append(
            f"| {row.name} | {z:.2f} | 1e{predicted:.1f} | {realised:.4f} | {orders} | {len(here)} |"
        )
    lines += ["", *(f"- {problem}" for problem in problems)] if problems else []
    paths["table"].write_text("\n".join(lines) + "\n")
    return paths


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
