"""The paper's anatomy of the conservatism (fig:anatomy): where seeds converge, against what that
means for violations.

c_B / l^2 = beta (sigma / l)^2 - (1 - mu / l)^2 of the cost itself, per seed, the mean over the
second half of training. A seed right of 0 sits beyond Cantelli's bound: what it keeps below epsilon
is slack of the inequality alone. A seed left of 0 adds slack of the optimiser. The moments are
those that the update saw; the bound is that of the cost, also where training shaped it.
"""

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from canary.errors import CanaryError
from canary.studies.cells import (
    ABOUT_FINAL,
    FINAL_COLUMNS,
    final_cells,
    final_numbers,
    probability,
)
from canary.studies.page import paths_of, shown, write_data, write_page
from canary.studies.rows import Row

LOWEST = 3e-4
SCHEMA = {
    "variant": pl.String, "environment": pl.String, "preset": pl.String, "seed": pl.Int64, "bound": pl.Float64,
    "violation": pl.Float64, "epsilon": pl.Float64, "final_violation": pl.Float64,
}  # fmt: skip


def save(
    results: Path, study: dict[str, Any], rows: list[Row], problems: list[str]
) -> dict[str, Path]:
    """Write table.md, table.csv (a line per seed) and anatomy.png."""
    tables, problems = {}, list(problems)
    for row in rows:
        try:
            tables[row.name] = pl.DataFrame(per_seed(row), SCHEMA)
        except CanaryError as error:
            problems.append(str(error))
    data = pl.concat([pl.DataFrame(schema=SCHEMA), *tables.values()])
    paths = paths_of(results, "anatomy.png")
    write_data(results, data)
    write_page(
        results,
        study,
        "c_B/ℓ² is Cantelli's constraint on the cost over the second half of training;\n"
        "inside means c_B ≤ 0. The paper (30 seeds each): every seed of EcoAnt and PointGoal "
        "outside, 22 of 30 of IcyLake\n"
        f"inside; 82 of 90 seeds keep P ≤ ε.\n{ABOUT_FINAL}",
        (
            "row",
            "seeds inside Cantelli's bound",
            "seeds with P ≤ ε",
            "median c_B/ℓ²",
            "median P",
            *FINAL_COLUMNS,
        ),
        [_cells(row, tables[row.name]) for row in rows if row.name in tables],
        problems,
        ("anatomy", "anatomy.png"),
    )
    _figure(data, study, paths["figure"])
    return paths


def per_seed(row: Row) -> list[dict[str, Any]]:
    """c_B / l^2 and P of every seed, over the second half of training."""
    metrics, limit = row.second_half("metrics"), row.summary["limit"]
    if not {"cost_mean", "cost_deviation"} <= set(metrics.columns):
        raise CanaryError(
            f"{row.group / 'metrics.parquet'} has no cost moments; anatomy leaves it out."
        )
    beta = 1 / row.summary["epsilon"] - 1
    value = beta * (pl.col("cost_deviation") / limit) ** 2 - (1 - pl.col("cost_mean") / limit) ** 2
    means = (
        metrics.filter(pl.col("cost_mean").is_not_nan()).group_by("seed").agg(bound=value.mean())
    )
    bound = dict(means.iter_rows())
    seeds = row.summary["seed_ids"]
    final = (row.final or {}).get("violation_per_seed", [None] * len(seeds))
    return [
        {
            "variant": row.name,
            "environment": row.summary["env"],
            "preset": row.summary["preset"],
            "seed": seed,
            "bound": bound.get(seed),
            "violation": violation,
            "epsilon": row.summary["epsilon"],
            "final_violation": last,
        }
        for seed, violation, last in zip(
            seeds, row.summary["violation_per_seed"], final, strict=True
        )
    ]


def _cells(row: Row, seeds: pl.DataFrame) -> tuple[str, ...]:
    """The seeds of one row in numbers; - where no seed has an episode in its second half."""
    bound, violation = (seeds[name].drop_nulls() for name in ("bound", "violation"))
    is_safe = (seeds["violation"] <= seeds["epsilon"]).drop_nulls()
    return (
        row.name,
        f"{(bound <= 0).sum()} of {len(bound)}" if len(bound) else "-",
        f"{is_safe.sum()} of {len(is_safe)}" if len(is_safe) else "-",
        shown(_median(bound), ".3f"),
        probability(_median(violation)),
        *final_cells(final_numbers(row), ".3f" if abs(row.summary["return_mean"] or 0) < 10 else ".1f"),
    )  # fmt: skip


def _median(values: pl.Series) -> float | None:
    return float(np.median(values.to_numpy())) if len(values) else None


def _figure(data: pl.DataFrame, study: dict[str, Any], path: Path) -> None:
    import matplotlib.pyplot as plt
    from matplotlib.ticker import FixedLocator

    from canary.reporting.figures import GREY, STYLE, allowed_line, save, show_probabilities

    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(figsize=(5.6, 3.8), layout="constrained")
        environments = data["environment"].unique(maintain_order=True).to_list()
        marks = {name: ("osD^vP*X"[i % 8], f"C{i}") for i, name in enumerate(environments)}
        for rows in data.partition_by("variant", maintain_order=True):
            marker, colour = marks[rows["environment"][0]]
            is_published = rows["preset"][0] == "paper"
            axes.scatter(
                rows["bound"], rows["violation"].clip(LOWEST), s=26, marker=marker, edgecolors=colour,
                facecolors="none" if is_published else colour,
                label=f"{rows['environment'][0]}{', as published' if is_published else ''}",
            )  # fmt: skip
        axes.axvline(0, color=GREY, linewidth=1, linestyle="--")
        for epsilon in data["epsilon"].unique().drop_nulls().sort():
            allowed_line(axes, epsilon, f"ε = {epsilon:g}")
        axes.set(
            yscale="log",
            xlabel="c_B / ℓ²  (right of 0: beyond Cantelli's bound)",
            title=study["title"],
        )
        axes.set_xscale("symlog", linthresh=1)
        axes.xaxis.set_major_locator(FixedLocator([-100, -10, -1, 0, 1, 2, 5, 10, 20, 50, 100]))
        axes.xaxis.set_major_formatter("{x:g}")
        known = [float(value) for value in data["bound"].drop_nulls()]
        axes.set_xlim(min([-1.0, *known]) * 1.3, max([1.0, *known]) * 1.6)  # no marker on the edge
        below = (
            f" ({LOWEST:g} and below at {LOWEST:g})" if (data["violation"] < LOWEST).any() else ""
        )
        axes.set_ylabel(f"P, second half{below}")
        show_probabilities(axes.yaxis)
        if len(data):
            axes.legend(loc="center left", bbox_to_anchor=(1, 0.5), fontsize=8)
        save(figure, path)
