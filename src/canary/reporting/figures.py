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
from canary.reporting.blocks import batch_of, curve, episode_blocks, rates
from canary.reporting.statistics import seen_by
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
    parts, count = parts_of(from_dict(config["constraint"])), len(config["training"]["seeds"])
    title = (
        f"{config['algorithm']['name']} on {config['environment']['name']}, preset "
        f"{config['preset']}, {count} seeds"
    )
    with canvas(len(parts), 3, (10.5, 3.1 * len(parts))) as (figure, axes):
        for panels, part in zip(axes, parts, strict=True):
            _draw_training(panels, _blocks(seen_by(part, episodes), part, config), part)
        for panel in axes.flat:
            show_steps(panel)
        figure.suptitle(title, x=0.01, ha="left", fontsize=10, color=GREY)
    return figure


def comparison_figure(runs: Sequence[tuple[dict[str, Any], pl.DataFrame, str]]) -> Figure:
    """Return and constraint of several runs, (configuration, episodes, label) each: the mean over
    seeds with a band of one standard deviation."""
    with canvas(1, 2, (9.5, 3.6)) as (figure, grid):
        left, right = grid[0]
        kinds = set()
        for (config, episodes, label), colour in zip(runs, colours(len(runs)), strict=True):
            constraint = one_cost(from_dict(config["constraint"]), "The figure of a comparison")
            kinds.add(constraint.kind)
            line = curve(_blocks(episodes, constraint, config), "return", "measured")
            for axes, column in ((left, "return"), (right, "measured")):
                draw_curve(axes, line, column, color=colour, label=label)
            right.axhline(constraint.allowed, color=colour, linestyle="--", linewidth=0.8)
        if kinds == {"chance"}:
            right.set_yscale("symlog", linthresh=0.001)
            right.set_ylim(0, 1)
        show_steps(left).set_title("mean return")
        show_steps(right).set_title("what the constraint limits (dashed: allowed)")
        figure.legend(*left.get_legend_handles_labels(), loc="outside lower center", fontsize=8)
        title = f"{runs[0][0]['environment']['name']}: means over seeds ± standard deviation"
        figure.suptitle(title, x=0.01, ha="left", fontsize=10)
    return figure


def _blocks(episodes: pl.DataFrame, constraint: One, config: dict[str, Any]) -> pl.DataFrame:
    """Rates per seed and block of training, with what the constraint limits."""
    updates = int(episodes["iteration"].max() or 0) + 1  # type: ignore[arg-type]
    found = rates(episode_blocks(episodes, updates, constraint.limit)).sort("seed", "block")
    measured = [constraint.measure(costs.to_numpy()) for costs in found["costs"]]
    return found.with_columns(
        measured=pl.Series(measured, dtype=pl.Float64),
        steps=(pl.col("last") + 1) * batch_of(config),
    )


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
    means = (pl.col(name).mean() for name in ("steps", "return", "cost", "deviation"))
    pooled = blocks.group_by("block").agg(*means, pl.col("costs").explode()).sort("block")
    steps, cost, deviation = (pooled[name].to_numpy() for name in ("steps", "cost", "deviation"))
    found = np.array([measurement(constraint, one.to_numpy()) for one in pooled["costs"]])
    value, lower, upper = np.maximum(found, floor).reshape(-1, 3).T
    for axes, line in ((returns, pooled["return"]), (limited, value), (costs, cost)):
        axes.plot(steps, line, color=BLUE, linewidth=1.8)
    limited.fill_between(steps, lower, upper, color=BLUE, alpha=0.25)
    low, high = np.maximum(cost - deviation, 0), cost + deviation
    costs.fill_between(steps, low, high, color=BLUE, alpha=0.15)
    allowed_line(costs, constraint.limit, f"limit {constraint.limit:g}")
    if isinstance(constraint, Chance):
        allowed_line(limited, constraint.epsilon, f"ε = {constraint.epsilon:g}")
        limited.set(yscale="log", ylim=(floor, 1))
    else:
        allowed_line(limited, constraint.limit, f"limit {constraint.limit:g}")
        limited.set_ylim(bottom=0)
    costs.set_ylim(bottom=0)
    returns.set_title("mean return (thin: seeds)")
    limited.set_title(f"{constraint.label}, all seeds, 95% band")
    costs.set_title("episode cost, mean ± deviation")


def draw_curve(
    axes: Axes, line: pl.DataFrame, name: str, floor: float = -np.inf, **style: Any
) -> None:
    """A mean over seeds with a band of one standard deviation (`blocks.curve`)."""
    mean, spread = line[name].to_numpy(), line[f"{name}_deviation"].to_numpy()
    axes.plot(line["steps"], np.maximum(mean, floor), linewidth=1.3, **style)
    band = np.maximum(mean - spread, floor), mean + spread
    axes.fill_between(line["steps"], *band, color=style["color"], alpha=0.12, linewidth=0)


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
