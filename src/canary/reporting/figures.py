"""Figures of runs, by matplotlib: tables in, figures out.

What a constraint limits is drawn per block of training with a 95% band. It describes policies that
were being trained and guarantees nothing.
"""

import io
from collections.abc import Sequence
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

from canary.constraints import Chance, Constraint, One, from_dict, one_cost, parts_of
from canary.numerics.measurement import measurement
from canary.reporting.statistics import is_violation, seen_by, student_interval
from canary.runs import files

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
    episodes: pl.DataFrame, *, title: str, constraint: Constraint, batch: int
) -> Figure:
    """Return, constraint and cost over training, a row for each constraint."""
    whole, parts = episodes.filter(pl.col("valid")), parts_of(constraint)
    with plt.rc_context(STYLE):
        size = (10.5, 3.1 * len(parts))
        figure, axes = plt.subplots(
            len(parts), 3, figsize=size, layout="constrained", squeeze=False
        )
        for row, part in zip(axes, parts, strict=True):
            blocks = training_blocks(seen_by(part, whole), part.limit, batch)
            _draw_returns(row[0], blocks)
            _draw_constraint(row[1], blocks, part)
            _draw_costs(row[2], blocks, part.limit)
        for each in axes.flat:
            each.set_xlabel("environment steps per seed")
            show_steps(each)
        figure.suptitle(title, x=0.01, ha="left", fontsize=10, color=GREY)
    return figure


def comparison_figure(runs: Sequence[tuple[dict[str, Any], pl.DataFrame, str]]) -> Figure:
    """Return and constraint of several runs, (configuration, episodes, label) each: the mean over
    seeds with a 95% band."""
    with plt.rc_context(STYLE):
        figure, (left, right) = plt.subplots(1, 2, figsize=(9.5, 3.6), layout="constrained")
        colours = plt.get_cmap("tab10").colors  # type: ignore[attr-defined]
        kinds = set()
        for index, (config, episodes, label) in enumerate(runs):
            facts, colour = figure_arguments(config), colours[index % len(colours)]
            constraint = one_cost(facts["constraint"], "The figure of a comparison")
            kinds.add(constraint.kind)
            whole = episodes.filter(pl.col("valid"))
            if whole.is_empty():
                continue
            blocks = training_blocks(whole, constraint.limit, facts["batch"])
            values = [constraint.measure(costs.to_numpy()) for costs in blocks["costs"]]
            blocks = blocks.with_columns(measured=pl.Series(values, dtype=pl.Float64))
            _draw_mean(left, blocks, "return", colour, label)
            _draw_mean(right, blocks, "measured", colour, label)
            right.axhline(constraint.allowed, color=colour, linestyle="--", linewidth=0.8)
        if kinds == {"chance"}:
            right.set_yscale("symlog", linthresh=0.001)
            right.set_ylim(0, 1)
        left.set_title("mean return")
        right.set_title("what the constraint limits (dashed: allowed)")
        for axes in (left, right):
            axes.set_xlabel("environment steps per seed")
            show_steps(axes)
        figure.legend(*left.get_legend_handles_labels(), loc="outside lower center", fontsize=8)
        title = f"{runs[0][0]['environment']['name']}: means over seeds, 95% bands"
        figure.suptitle(title, x=0.01, ha="left", fontsize=10)
    return figure


def figure_arguments(config: dict[str, Any]) -> dict[str, Any]:
    """The arguments of `training_figure` for a stored configuration."""
    training = config["training"]
    title = (
        f"{config['algorithm']['name']} on {config['environment']['name']}, preset "
        f"{config['preset']}, {len(training['seeds'])} seeds"
    )
    batch = training["environments"] * training["rollout_length"]
    return {"title": title, "constraint": from_dict(config["constraint"]), "batch": batch}


def training_blocks(
    episodes: pl.DataFrame, limit: float, batch: int, blocks: int = BLOCKS
) -> pl.DataFrame:
    """Averages per seed over about so many equal blocks of training."""
    updates = int(episodes["iteration"].max() or 0) + 1  # type: ignore[arg-type]
    over = pl.Series("over", is_violation(episodes["cost"].to_numpy(), limit), pl.Boolean)
    return (
        episodes.with_columns(over, steps=(block_of(updates, blocks) + 0.5) * batch)
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


def block_of(updates: int, blocks: int = BLOCKS) -> pl.Expr:
    """The middle update of each row's block. The last block also takes what the division leaves
    over."""
    width = max(1, updates // blocks)
    block = (pl.col("iteration") // width).clip(upper_bound=max(updates // width - 1, 0))
    return (block + 0.5) * width - 0.5


def _draw_returns(axes: Axes, blocks: pl.DataFrame) -> None:
    _draw_seeds(axes, blocks, "return")
    mean = blocks.group_by("steps").agg(pl.col("return").mean()).sort("steps")
    axes.plot(mean["steps"], mean["return"], color=BLUE, linewidth=1.8)
    axes.set_title("mean return (thin: seeds)")


def _draw_constraint(axes: Axes, blocks: pl.DataFrame, constraint: One) -> None:
    """What the constraint limits, per block: of each seed, and of all seeds with a 95% band."""
    # The logarithmic axis of a probability ends at a floor, along which zeros are drawn
    floor = constraint.epsilon / 50 if isinstance(constraint, Chance) else 0.0

    def measured(costs: pl.Series) -> np.ndarray:
        return np.maximum(np.array(measurement(constraint, costs.to_numpy())), floor)

    values = [measured(costs)[0] for costs in blocks["costs"]]
    _draw_seeds(axes, blocks.with_columns(value=pl.Series(values, dtype=pl.Float64)), "value")
    pairs = blocks.select("steps", "costs").explode("costs")
    whole = pairs.group_by("steps").agg("costs").sort("steps")
    value, lower, upper = np.array([measured(costs) for costs in whole["costs"]]).T
    axes.fill_between(whole["steps"], lower, upper, color=BLUE, alpha=0.25)
    axes.plot(whole["steps"], value, color=BLUE, linewidth=1.8)
    if isinstance(constraint, Chance):
        allowed_line(axes, constraint.epsilon, f"ε = {constraint.epsilon:g}")
        axes.set_yscale("log")
        axes.set_ylim(floor, 1)
    else:
        allowed_line(axes, constraint.limit, f"limit {constraint.limit:g}")
        axes.set_ylim(bottom=0)
    axes.set_title(f"{constraint.label}, all seeds, 95% band")


def _draw_costs(axes: Axes, blocks: pl.DataFrame, limit: float) -> None:
    _draw_seeds(axes, blocks, "cost")
    means = pl.col("cost").mean(), pl.col("deviation").mean()
    spread = blocks.group_by("steps").agg(*means).sort("steps")
    steps, mean, deviation = (spread[name].to_numpy() for name in ("steps", "cost", "deviation"))
    axes.plot(steps, mean, color=BLUE, linewidth=1.8)
    low, high = np.maximum(mean - deviation, 0), mean + deviation
    axes.fill_between(steps, low, high, color=BLUE, alpha=0.15)
    allowed_line(axes, limit, f"limit {limit:g}")
    axes.set_ylim(bottom=0)
    axes.set_title("episode cost, mean ± deviation")


def _draw_seeds(axes: Axes, blocks: pl.DataFrame, column: str) -> None:
    for _, seed in blocks.group_by("seed", maintain_order=True):
        axes.plot(seed["steps"], seed[column], color=BLUE, linewidth=0.6, alpha=0.45)


def _draw_mean(axes: Axes, blocks: pl.DataFrame, column: str, colour: Any, label: str) -> None:
    parts = blocks.sort("steps").partition_by("steps", maintain_order=True)
    found = [student_interval(part[column].to_list()) or (np.nan, None) for part in parts]
    mean, half = np.array([(value, width or 0.0) for value, width in found]).T
    steps = [part["steps"][0] for part in parts]
    axes.plot(steps, mean, color=colour, linewidth=1.6, label=label)
    axes.fill_between(steps, mean - half, mean + half, color=colour, alpha=0.18, linewidth=0)


def show_steps(axes: Axes) -> Axes:
    """A horizontal axis of environment steps with few ticks, as 200k or 1.5M."""
    axes.xaxis.set_major_locator(MaxNLocator(5))
    axes.xaxis.set_major_formatter(
        lambda value, _: (
            f"{value / 1e6:g}M" if value >= 1e6 else f"{value / 1e3:g}k" if value else "0"
        )
    )
    return axes


def show_probabilities(axis: Axis) -> Axis:
    """A logarithmic axis of probabilities: plain numbers that do not overlap, also within one
    decade."""
    low, high = axis.get_view_interval()
    if high < 10 * low:
        axis.set_major_locator(MaxNLocator(5))
    else:
        axis.set_major_locator(LogLocator(subs=(1, 2, 5) if high < 200 * low else (1,)))
    axis.set_major_formatter("{x:g}")
    axis.set_minor_formatter(NullFormatter())
    return axis


def allowed_line(axes: Axes, value: float, label: str) -> None:
    """A dashed line at what is allowed, with a label at its right end."""
    axes.axhline(value, color=RED, linestyle="--", linewidth=1)
    place = {"xycoords": ("axes fraction", "data"), "ha": "right", "va": "bottom"}
    axes.annotate(label, (1, value), color=RED, fontsize=8, **place)


def save(figure: Figure, path: Path) -> None:
    """Write the figure as PNG, without the version of matplotlib, which would change the file."""
    files.check_target(path)
    picture = io.BytesIO()
    figure.savefig(picture, format="png", metadata={"Software": None})
    plt.close(figure)
    files.write_atomically(path, picture.getvalue())
