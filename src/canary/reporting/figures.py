"""Figures as functions of a run's tables: arrays and axes in, axes out; saving is the caller's.

The violation probability is drawn per block of training with its exact binomial 95% band. It
describes the policies that were being trained, so it is a description, never a guarantee.
"""

import io
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter

from canary.constraints import Chance, Constraint, from_dict
from canary.numerics.binomial import clopper_pearson_interval
from canary.numerics.measurement import Measurement, measurement
from canary.runs import directory

STYLE = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 10,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "legend.frameon": False,
    "figure.dpi": 150,
}
BLUE, RED, GREY, GREEN = "#2f6db5", "#c8443c", "#8a8a8a", "#3a9a5b"
BLOCKS = 40


def training_figure(
    episodes: pl.DataFrame,
    *,
    title: str,
    constraint: Constraint,
    batch: int,
    optimum: dict[str, float] | None = None,
) -> Figure:
    """Return, violation probability and cost over training; `optimum` draws exact best returns as
    labelled lines."""
    limit = constraint.limit
    blocks = training_blocks(episodes.filter(pl.col("valid")), limit, batch)
    with plt.rc_context(STYLE):
        figure, (left, middle, right) = plt.subplots(
            1, 3, figsize=(10.5, 3.1), layout="constrained"
        )
        draw_returns(left, blocks, optimum or {})
        if isinstance(constraint, Chance):
            draw_violations(middle, blocks, limit, constraint.epsilon)
        else:
            draw_measured(middle, blocks, constraint)
        draw_costs(right, blocks, limit)
        for axes in (left, middle, right):
            axes.set_xlabel("environment steps per seed")
            show_steps(axes)
        figure.suptitle(title, x=0.01, ha="left", fontsize=10, color=GREY)
    return figure


def show_steps(axes: Axes) -> Axes:
    """A horizontal axis of environment steps: few ticks, as 200k or 1.5M."""
    axes.xaxis.set_major_locator(MaxNLocator(5))
    axes.xaxis.set_major_formatter(
        lambda value, _: (
            f"{value / 1e6:g}M" if value >= 1e6 else f"{value / 1e3:g}k" if value else "0"
        )
    )
    return axes


def show_probabilities(axis: Axis) -> Axis:
    """A logarithmic axis of probabilities: plain numbers, few enough not to overprint, also within
    one decade."""
    low, high = axis.get_view_interval()
    if high < 10 * low:
        axis.set_major_locator(MaxNLocator(5))
    else:
        axis.set_major_locator(LogLocator(subs=(1, 2, 5) if high < 200 * low else (1,)))
    axis.set_major_formatter("{x:g}")
    axis.set_minor_formatter(NullFormatter())
    return axis


def draw_returns(axes: Axes, blocks: pl.DataFrame, optimum: dict[str, float]) -> Axes:
    _seed_lines(axes, blocks, "return", BLUE)
    for (label, value), shade in zip(optimum.items(), (GREEN, RED, GREY), strict=False):
        axes.axhline(value, color=shade, linestyle="--", linewidth=1)
        axes.annotate(
            f"{label} "
            f"{value:.3f}", (1, value), xycoords=("axes fraction", "data"), ha="right", va="bottom",
            fontsize=7, color=shade, bbox={"facecolor": "white", "alpha": 0.75, "linewidth": 0, "pad": 0.5},
        )  # fmt: skip
    axes.set_title("mean return (thin: seeds)")
    return axes


def draw_violations(axes: Axes, blocks: pl.DataFrame, limit: float, epsilon: float) -> Axes:
    floor = epsilon / 50  # where the axis ends: a block without violations runs along it
    shown = blocks.with_columns(pl.col("violation").clip(lower_bound=floor))
    _seed_lines(axes, shown, "violation", BLUE, pooled=False)
    whole = (
        blocks.group_by("steps")
        .agg(pl.col("violations").sum(), pl.col("count").sum())
        .sort("steps")
    )
    steps, violations, count = (whole[name].to_numpy() for name in ("steps", "violations", "count"))
    lower, upper = clopper_pearson_interval(violations, count)
    axes.fill_between(
        steps, np.maximum(lower, floor), np.maximum(upper, floor), color=BLUE, alpha=0.25
    )
    axes.plot(steps, np.maximum(violations / count, floor), color=BLUE, linewidth=1.8)
    allowed_line(axes, epsilon, f"ε = {epsilon:g}")
    axes.set_yscale("log")
    axes.set_ylim(floor, 1)
    axes.set_title(f"P(cost > {limit:g}), all seeds, 95% band")
    return axes


def draw_measured(axes: Axes, blocks: pl.DataFrame, constraint: Constraint) -> Axes:
    """What a constraint on a mean limits, per block: of each seed, and of all with a normal 95%
    band."""

    def measured(costs: pl.Series) -> Measurement:
        found = measurement(constraint, costs.to_numpy())
        assert found is not None  # a block has episodes
        return found

    seeds = blocks.with_columns(
        pl.Series("value", [measured(costs).value for costs in blocks["costs"]], pl.Float64)
    )
    _seed_lines(axes, seeds, "value", BLUE, pooled=False)
    whole = (
        blocks.select("steps", "costs")
        .explode("costs")
        .group_by("steps")
        .agg("costs")
        .sort("steps")
    )
    value, lower, upper = np.array([measured(costs) for costs in whole["costs"]]).T
    axes.fill_between(whole["steps"], np.maximum(lower, 0), upper, color=BLUE, alpha=0.25)
    axes.plot(whole["steps"], value, color=BLUE, linewidth=1.8)
    allowed_line(axes, constraint.limit, f"limit {constraint.limit:g}")
    axes.set_ylim(bottom=0)
    axes.set_title(f"{constraint.label}, all seeds, 95% band")
    return axes


def draw_costs(axes: Axes, blocks: pl.DataFrame, limit: float) -> Axes:
    _seed_lines(axes, blocks, "cost", BLUE)
    spread = (
        blocks.group_by("steps")
        .agg(pl.col("cost").mean(), pl.col("deviation").mean())
        .sort("steps")
    )
    steps, mean, deviation = (spread[name].to_numpy() for name in ("steps", "cost", "deviation"))
    axes.fill_between(
        steps, np.maximum(mean - deviation, 0), mean + deviation, color=BLUE, alpha=0.15
    )
    allowed_line(axes, limit, f"limit {limit:g}")
    axes.set_ylim(bottom=0)
    axes.set_title("episode cost, mean ± deviation")
    return axes


def allowed_line(axes: Axes, value: float, label: str) -> None:
    """A dashed line at what is allowed, named at its right end."""
    axes.axhline(value, color=RED, linestyle="--", linewidth=1)
    place = {"xycoords": ("axes fraction", "data"), "ha": "right", "va": "bottom"}
    axes.annotate(label, (1, value), color=RED, fontsize=8, **place)


def save(figure: Figure, path: Path) -> None:
    """Write the figure as PNG, whole or not at all. One that is made again is the same file,
    whatever made it."""
    picture = io.BytesIO()
    figure.savefig(picture, format="png", metadata={"Software": None})
    plt.close(figure)
    directory.write_atomically(path, picture.getvalue())


def training_blocks(episodes: pl.DataFrame, limit: float, batch: int) -> pl.DataFrame:
    """Averages per seed over equal blocks of training."""
    updates = int(episodes["iteration"].max() or 0) + 1  # type: ignore[arg-type]
    width = max(1, updates // BLOCKS)
    return (
        episodes.with_columns(
            # The last block takes what the division leaves over, rather than being a thin one of
            # its own.
            steps=(
                (pl.col("iteration") // width).clip(upper_bound=max(updates // width - 1, 0)) + 0.5
            )
            * width
            * batch,
            over=pl.col("cost") > limit,
        )
        .group_by("seed", "steps")
        .agg(
            pl.col("return").mean(),
            pl.col("cost").mean(),
            deviation=pl.col("cost").std(ddof=0),
            costs=pl.col("cost"),
            violations=pl.col("over").sum(),
            count=pl.len(),
        )
        .with_columns(violation=pl.col("violations") / pl.col("count"))
        .sort("seed", "steps")
    )


def _seed_lines(
    axes: Axes, blocks: pl.DataFrame, column: str, colour: str, pooled: bool = True
) -> None:
    for _, seed in blocks.group_by("seed", maintain_order=True):
        axes.plot(seed["steps"], seed[column], color=colour, linewidth=0.6, alpha=0.45)
    if pooled:
        mean = blocks.group_by("steps").agg(pl.col(column).mean()).sort("steps")
        axes.plot(mean["steps"], mean[column], color=colour, linewidth=1.8)


def figure_arguments(config: dict[str, Any]) -> dict[str, Any]:
    """What `training_figure` needs of a run's configuration."""
    constraint, training = from_dict(config["constraint"]), config["training"]
    title = (
        f"{config['algorithm']['name']} on {config['environment']['name']}, preset "
        f"{config['preset']}, {len(training['seeds'])} seeds"
    )
    batch = training["environments"] * training["rollout_length"]
    return {"title": title, "constraint": constraint, "batch": batch}
