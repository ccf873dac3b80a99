"""The paper's anatomy of the conservatism (fig:anatomy): where seeds converge, against what that
means for violations.

c_B / l^2 = beta (sigma / l)^2 - (1 - mu / l)^2 of the cost itself, per seed, the mean over the
second half of training. A seed right of 0 sits beyond Cantelli's bound: what it keeps below epsilon
is slack of the inequality alone. A seed left of 0 adds slack of the optimiser. The moments are
those that the update saw; the bound is that of the cost, also where training shaped it.
"""

from pathlib import Path
from typing import Any

import polars as pl

from canary.errors import CanaryError
from canary.studies.page import paths_of, write_data, write_page
from canary.studies.rows import Row

LOWEST = 3e-4


def save(
    results: Path, study: dict[str, Any], rows: list[Row], problems: list[str]
) -> dict[str, Path]:
    """Write table.md, table.csv (a line per seed) and anatomy.png."""
    seeds, problems = [], list(problems)
    for row in rows:
        try:
            seeds += per_seed(row)
        except CanaryError as error:
            problems.append(str(error))
    data = pl.DataFrame(seeds, infer_schema_length=None)
    paths = paths_of(results, "anatomy.png")
    write_data(results, data)
    write_page(
        results,
        study,
        "c_B/ℓ² is Cantelli's constraint on the cost over the second half of training;\n"
        "inside means c_B ≤ 0. The paper (30 seeds each): every seed of EcoAnt and PointGoal "
        "outside, 22 of 30 of IcyLake\n"
        "inside; 82 of 90 seeds keep P ≤ ε.",
        ("row", "seeds inside Cantelli's bound", "seeds with P ≤ ε", "median c_B/ℓ²", "median P"),
        [_cells(seeds) for seeds in data.partition_by("variant", maintain_order=True)],
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
    return [
        {
            "variant": row.name,
            "environment": row.summary["env"],
            "preset": row.summary["preset"],
            "seed": seed,
            "bound": bound.get(seed),
            "violation": violation,
            "epsilon": row.summary["epsilon"],
        }
        for seed, violation in zip(
            row.summary["seed_ids"], row.summary["violation_per_seed"], strict=True
        )
    ]


def _cells(seeds: pl.DataFrame) -> tuple[str, ...]:
    """The seeds of one row in numbers."""
    inside, safe = (seeds["bound"] <= 0).sum(), (seeds["violation"] <= seeds["epsilon"]).sum()
    medians = f"{seeds['bound'].median():.3f}", f"{seeds['violation'].median():.4f}"
    return seeds["variant"][0], f"{inside} of {len(seeds)}", f"{safe} of {len(seeds)}", *medians


def _figure(data: pl.DataFrame, study: dict[str, Any], path: Path) -> None:
    import matplotlib.pyplot as plt

    from canary.reporting.figures import GREY, RED, STYLE, save

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
        for epsilon in data["epsilon"].unique().sort():
            axes.axhline(epsilon, color=RED, linewidth=1, linestyle="--")
        axes.set(
            yscale="log",
            xlabel="c_B / l²  (right of 0: beyond Cantelli's bound)",
            title=study["title"],
        )
        axes.set_xscale("symlog", linthresh=1)
        axes.xaxis.set_major_formatter("{x:g}")
        axes.set_ylabel(f"P, second half ({LOWEST:g} and below at {LOWEST:g})")
        axes.legend(loc="center left", bbox_to_anchor=(1, 0.5), fontsize=8)
        save(figure, path)
