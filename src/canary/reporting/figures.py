"""Figures of runs, by matplotlib: tables in, figures out.

Curves are averages over blocks of training. They describe policies that were still changing, so
their bands guarantee nothing.
"""

import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter

from canary.constraints import Chance, One, from_dict, one_cost, parts_of
from canary.numerics.statistics import measurement
from canary.reporting.statistics import seen_by, student_interval
from canary.reporting.summary import batch_of
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


@contextmanager
def canvas(
    rows: int, columns: int, size: tuple[float, float], **how: Any
) -> Iterator[tuple[Figure, Any]]:
    """A figure and its grid of axes, without pyplot, whose backend and figures are the user's."""
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=size, layout="constrained")
        yield figure, figure.subplots(rows, columns, squeeze=False, **how)


def colours(count: int) -> list[Any]:
    """So many colours, the same ones again after 20."""
    known = matplotlib.colormaps["tab20" if count > 10 else "tab10"]
    return [known(index % known.N) for index in range(count)]


def training_figure(episodes: pl.DataFrame, config: dict[str, Any]) -> Figure:
    """Return, constraint and cost over the training of a run, a row for each constraint."""
    whole, parts = episodes.filter(pl.col("valid")), parts_of(from_dict(config["constraint"]))
    batch, count = batch_of(config), len(config["training"]["seeds"])
    title = (
        f"{config['algorithm']['name']} on {config['environment']['name']}, preset "
        f"{config['preset']}, {count} seeds"
    )
    with canvas(len(parts), 3, (10.5, 3.1 * len(parts))) as (figure, axes):
        for panels, part in zip(axes, parts, strict=True):
            _draw_training(panels, training_blocks(seen_by(part, whole), part, batch), part)
        for panel in axes.flat:
            show_steps(panel)
        figure.suptitle(title, x=0.01, ha="left", fontsize=10, color=GREY)
    return figure


def comparison_figure(runs: Sequence[tuple[dict[str, Any], pl.DataFrame, str]]) -> Figure:
    """Return and constraint of several runs, (configuration, episodes, label) each: the mean over
    seeds with a 95% band."""
    with canvas(1, 2, (9.5, 3.6)) as (figure, grid):
        left, right = grid[0]
        kinds = set()
        for (config, episodes, label), colour in zip(runs, colours(len(runs)), strict=True):
            constraint = one_cost(from_dict(config["constraint"]), "The figure of a comparison")
            kinds.add(constraint.kind)
            whole = episodes.filter(pl.col("valid"))
            if whole.is_empty():
                continue
            blocks = training_blocks(whole, constraint, batch_of(config))
            for axes, column in ((left, "return"), (right, "measured")):
                _draw_mean(axes, blocks, column, colour, label)
            right.axhline(constraint.allowed, color=colour, linestyle="--", linewidth=0.8)
        if kinds == {"chance"}:
            right.set_yscale("symlog", linthresh=0.001)
            right.set_ylim(0, 1)
        show_steps(left).set_title("mean return")
        show_steps(right).set_title("what the constraint limits (dashed: allowed)")
        figure.legend(*left.get_legend_handles_labels(), loc="outside lower center", fontsize=8)
        title = f"{runs[0][0]['environment']['name']}: means over seeds, 95% bands"
        figure.suptitle(title, x=0.01, ha="left", fontsize=10)
    return figure


def training_blocks(episodes: pl.DataFrame, constraint: One, batch: int) -> pl.DataFrame:
    """Averages per seed over about 40 equal blocks of training, by the steps at their middle. The
    last block also takes the remainder of the division."""
    updates = int(episodes["iteration"].max() or 0) + 1  # type: ignore[arg-type]
    width = max(1, updates // BLOCKS)
    block = (pl.col("iteration") // width).clip(upper_bound=updates // width - 1)
    blocks = (
        episodes.group_by("seed", steps=(block + 0.5) * width * batch)
        .agg(
            pl.col("return").mean(),
            pl.col("cost").mean(),
            deviation=pl.col("cost").std(ddof=0),
            costs=pl.col("cost"),
        )
        .sort("seed", "steps")
    )
    measured = [constraint.measure(costs.to_numpy()) for costs in blocks["costs"]]
    return blocks.with_columns(measured=pl.Series(measured, dtype=pl.Float64))


def _draw_training(panels: Sequence[Axes], blocks: pl.DataFrame, constraint: One) -> None:
    """Thin lines are seeds, thick ones all seeds together."""
    returns, limited, costs = panels
    # The logarithmic axis of a probability ends at a floor, along which zeros are drawn
    floor = constraint.epsilon / 50 if isinstance(constraint, Chance) else -np.inf
    for _, seed in blocks.group_by("seed", maintain_order=True):
        style = {"color": BLUE, "linewidth": 0.6, "alpha": 0.45}
        returns.plot(seed["steps"], seed["return"], **style)
        limited.plot(seed["steps"], np.maximum(seed["measured"], floor), **style)
        costs.plot(seed["steps"], seed["cost"], **style)
    means = (pl.col(name).mean() for name in ("return", "cost", "deviation"))
    pooled = blocks.group_by("steps").agg(*means, pl.col("costs").explode()).sort("steps")
    steps, cost, deviation = (pooled[name].to_numpy() for name in ("steps", "cost", "deviation"))
    found = np.array([measurement(constraint, one.to_numpy()) for one in pooled["costs"]])
    value, lower, upper = np.maximum(found, floor).T
    for axes, line in ((returns, pooled["return"]), (limited, value), (costs, cost)):
        axes.plot(steps, line, color=BLUE, linewidth=1.8)
    limited.fill_between(steps, lower, upper, color=BLUE, alpha=0.25)
    low, high = np.maximum(cost - deviation, 0), cost + deviation
    costs.fill_between(steps, low, high, color=BLUE, alpha=0.15)
    if isinstance(constraint, Chance):
        allowed_line(limited, constraint.epsilon, f"ε = {constraint.epsilon:g}")
        limited.set_yscale("log")
        limited.set_ylim(floor, 1)
    else:
        allowed_line(limited, constraint.limit, f"limit {constraint.limit:g}")
        limited.set_ylim(bottom=0)
    allowed_line(costs, constraint.limit, f"limit {constraint.limit:g}")
    costs.set_ylim(bottom=0)
    returns.set_title("mean return (thin: seeds)")
    limited.set_title(f"{constraint.label}, all seeds, 95% band")
    costs.set_title("episode cost, mean ± deviation")


def _draw_mean(axes: Axes, blocks: pl.DataFrame, column: str, colour: Any, label: str) -> None:
    parts = blocks.sort("steps").partition_by("steps", maintain_order=True)
    found = [student_interval(part[column].to_list()) for part in parts]
    mean, half = np.array([(value, width or 0.0) for value, width in found]).T
    steps = [part["steps"][0] for part in parts]
    axes.plot(steps, mean, color=colour, linewidth=1.6, label=label)
    axes.fill_between(steps, mean - half, mean + half, color=colour, alpha=0.18, linewidth=0)


def show_steps(axes: Axes) -> Axes:
    """A horizontal axis of environment steps with few ticks, as 200k or 1.5M."""

    def text(value: float, _: float) -> str:
        if value >= 1e6:
            return f"{value / 1e6:g}M"
        return f"{value / 1e3:g}k" if value else "0"

    axes.xaxis.set_major_locator(MaxNLocator(5))
    axes.xaxis.set_major_formatter(text)
    axes.set_xlabel("environment steps per seed")
    return axes


def show_probabilities(axis: Axis) -> Axis:
    """A logarithmic axis of probabilities with few plain numbers, also within one decade."""
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


def legend_beside(axes: Axes, columns: int = 1) -> None:
    """A legend at the right of the axes."""
    place: dict[str, Any] = {"loc": "center left", "bbox_to_anchor": (1, 0.5)}
    axes.legend(fontsize=8, labelcolor=GREY, ncols=columns, **place)


def save(figure: Figure, path: Path) -> None:
    """Write the figure as PNG, without the version of matplotlib, which would change the file."""
    files.check_target(path)
    picture = io.BytesIO()
    with matplotlib.rc_context(STYLE):
        figure.savefig(picture, format="png", metadata={"Software": None})
    files.write_atomically(path, picture.getvalue())
