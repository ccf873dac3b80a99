"""The paper's anatomy of the conservatism (fig:anatomy): where seeds converge, and what they violate.

c_B / l^2 = (1/epsilon - 1) (sigma/l)^2 - (1 - mu/l)^2 of the cost itself, per seed, averaged over the
second half of training, at the moments that the update saw. A seed with c_B > 0 is outside Cantelli's
bound: only the slack of the inequality keeps its P below epsilon.
"""

from pathlib import Path
from statistics import median

import polars as pl

from canary.studies.page import Page, Paths, Row
from canary.studies.table import (
    ABOUT_FINAL,
    FINAL_COLUMNS,
    LOWEST,
    final_cells,
    final_numbers,
    probability,
    shown,
)

SCHEMA = {
    "row": pl.String, "environment": pl.String, "preset": pl.String, "seed": pl.Int64, "bound": pl.Float64,
    "violation": pl.Float64, "violation_whole": pl.Float64, "epsilon": pl.Float64,
}  # fmt: skip


def save(page: Page) -> Paths:
    data = pl.DataFrame([line for row in page.shown for line in _seeds(row)], SCHEMA, orient="row")
    figure = "anatomy.png" if len(data) else None
    if figure:
        _figure(data, page.study["title"], page.folder / figure)
    return page.table(
        "c_B/ℓ² is Cantelli's constraint on the cost over the second half of training; inside means "
        "c_B ≤ 0.\nThe paper (30 seeds each): every seed of EcoAnt and PointGoal outside, 22 of 30 "
        f"of IcyLake inside; 82 of 90 seeds keep P ≤ ε.\n{ABOUT_FINAL}",
        ("row", "seeds inside Cantelli's bound", "seeds with P ≤ ε", "median c_B/ℓ²", "median P",
         "median P, whole training", *FINAL_COLUMNS),
        lambda row: [_cells(row)],
        data,
        figure,
    )  # fmt: skip


def _seeds(row: Row) -> list[tuple]:
    return [
        (row.name, row.environment, row.preset, seed, one["cantelli"], one["violation"],
         one["violation_whole"], row.epsilon)
        for seed, one in row.seeds.items()
    ]  # fmt: skip


def _cells(row: Row) -> tuple[str, ...]:
    """The seeds of one row in numbers; - where no seed has any."""
    bound, violation, whole = (
        [value for value in row.each(name) if value is not None]
        for name in ("cantelli", "violation", "violation_whole")
    )
    safe = sum(p <= (row.epsilon or 0) for p in violation)
    rewards = [abs(value) for value in row.each("return") if value is not None]
    return (
        row.name,
        f"{sum(b <= 0 for b in bound)} of {len(bound)}" if bound else "-",
        f"{safe} of {len(violation)}" if violation else "-",
        shown(median(bound) if bound else None, ".3f"),
        probability(median(violation) if violation else None),
        probability(median(whole) if whole else None),
        *final_cells(final_numbers(row), ".3f" if max(rewards, default=0) < 10 else ".1f"),
    )


def _figure(data: pl.DataFrame, title: str, path: Path) -> None:
    import matplotlib.pyplot as plt
    from matplotlib.ticker import FixedLocator

    from canary.reporting.figures import GREY, STYLE, allowed_line, save, show_probabilities

    environments = data["environment"].unique(maintain_order=True).to_list()
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(figsize=(5.6, 3.8), layout="constrained")
        for rows in data.partition_by("row", maintain_order=True):
            index, preset = environments.index(rows["environment"][0]), rows["preset"][0]
            faces = {"paper": "none", "authors": "lightgrey"}
            axes.scatter(
                rows["bound"], rows["violation"].clip(LOWEST), s=26, marker="osD^vP*X"[index % 8],
                edgecolors=f"C{index}", facecolors=faces.get(preset, f"C{index}"),
                label=f"{rows['environment'][0]}, `{preset}`",
            )  # fmt: skip
        axes.axvline(0, color=GREY, linewidth=1, linestyle="--")
        for epsilon in data["epsilon"].unique().drop_nulls().sort():
            allowed_line(axes, epsilon, f"ε = {epsilon:g}")
        axes.set_xscale("symlog", linthresh=1)
        axes.xaxis.set_major_locator(FixedLocator([-100, -10, -1, 0, 1, 2, 5, 10, 20, 50, 100]))
        axes.xaxis.set_major_formatter("{x:g}")
        known = data["bound"].drop_nulls().to_list()
        axes.set_xlim(min([-1.0, *known]) * 1.3, max([1.0, *known]) * 1.6)  # room at the edges
        axes.set(yscale="log", title=title, ylabel=f"P, second half (at least {LOWEST:g})")
        axes.set_xlabel("c_B / ℓ²  (right of 0: outside Cantelli's bound)")
        show_probabilities(axes.yaxis)
        axes.legend(loc="center left", bbox_to_anchor=(1, 0.5), fontsize=8)
        save(figure, path)
