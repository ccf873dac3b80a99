"""Figures of results, by matplotlib.

Curves are averages over blocks of training. The policies change within a block, so the bands are no
guarantees.
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

from canary.constraints import Chance
from canary.reporting.results import Results
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
    """A figure and its grid of axes; not by pyplot, whose backend and figures belong to the user."""
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=size, layout="constrained")
        yield figure, figure.subplots(rows, columns, squeeze=False, **how)


def colours(count: int) -> list[Any]:
    """`count` colours, which repeat after 20."""
    known = matplotlib.colormaps["tab20" if count > 10 else "tab10"]
    return [known(index % known.N) for index in range(count)]


def training_figure(results: Sequence[Results]) -> Figure:
    """Return, constraint and cost over training, a row for each constraint of a run."""
    config, count = results[0].config, len(results[0].seeds)
    title = (
        f"{config['algorithm']['name']} on {results[0].environment}, preset {config['preset']}, "
        f"{count} seeds"
    )
    with canvas(len(results), 3, (10.5, 3.1 * len(results))) as (figure, axes):
        for panels, one in zip(axes, results, strict=True):
            _draw_training(panels, one)
        for panel in axes.flat:
            show_steps(panel)
        figure.suptitle(title, x=0.01, ha="left", fontsize=10, color=GREY)
    return figure


def _draw_training(panels: Sequence[Axes], results: Results) -> None:
    """Draw seeds as thin lines, and all seeds together as thick lines."""
    returns, limited, costs = panels
    constraint, whole = results.constraint, results.pooled()
    # The logarithmic axis of a probability ends at a floor, where zeros are drawn
    floor = constraint.epsilon / 50 if isinstance(constraint, Chance) else -np.inf
    for axes, name, least in (
        (returns, "return", -np.inf),
        (limited, "measured", floor),
        (costs, "cost", -np.inf),
    ):
        for _, seed in results.rates.group_by("seed", maintain_order=True):
            y = seed[name].clip(least)
            axes.plot(seed["steps"], y, color=BLUE, linewidth=0.6, alpha=0.45)
        axes.plot(whole["steps"], whole[name].clip(least), color=BLUE, linewidth=1.8)
    low, high = (whole["cost"] - whole["deviation"]).clip(0), whole["cost"] + whole["deviation"]
    costs.fill_between(whole["steps"], low, high, color=BLUE, alpha=0.15)
    allowed_line(costs, constraint.limit, f"limit {constraint.limit:g}")
    if isinstance(constraint, Chance):
        lower, upper = (whole[name].clip(floor) for name in ("lower", "upper"))
        limited.fill_between(whole["steps"], lower, upper, color=BLUE, alpha=0.25)
        allowed_line(limited, constraint.epsilon, f"ε = {constraint.epsilon:g}")
        limited.set(yscale="log", ylim=(floor, 1))
    else:
        allowed_line(limited, constraint.limit, f"limit {constraint.limit:g}")
        limited.set_ylim(bottom=0)
    costs.set_ylim(bottom=0)
    returns.set_title("mean return (thin: seeds)")
    band = ", 95% band" if isinstance(constraint, Chance) else ""
    limited.set_title(f"{constraint.label}, all seeds{band}")
    costs.set_title("episode cost, mean ± deviation")


def comparison_figure(runs: Sequence[tuple[str, Results]]) -> Figure:
    """Return and constraint of labelled runs: the mean over seeds with a band of one standard
    deviation."""
    with canvas(1, 2, (9.5, 3.6)) as (figure, grid):
        left, right = grid[0]
        for (label, results), colour in zip(runs, colours(len(runs)), strict=True):
            line = results.curve("return", "measured")
            for axes, column in ((left, "return"), (right, "measured")):
                draw_curve(axes, line, column, color=colour, label=label)
            allowed = results.constraint.allowed
            right.axhline(allowed, color=colour, linestyle="--", linewidth=0.8)
        if all(results.constraint.kind == "chance" for _, results in runs):
            right.set_yscale("symlog", linthresh=0.001)
            right.set_ylim(0, 1)
        show_steps(left).set_title("mean return")
        show_steps(right).set_title("what the constraint limits (dashed: allowed)")
        figure.legend(*left.get_legend_handles_labels(), loc="outside lower center", fontsize=8)
        title = f"{runs[0][1].environment}: means over seeds ± standard deviation"
        figure.suptitle(title, x=0.01, ha="left", fontsize=10)
    return figure


def draw_curve(
    axes: Axes, line: pl.DataFrame, name: str, floor: float = -np.inf, **style: Any
) -> None:
    """A mean over seeds with a band of one standard deviation (`Results.curve`)."""
    mean, spread = line[name].to_numpy(), line[f"{name}_deviation"].to_numpy()
    axes.plot(line["steps"], np.maximum(mean, floor), linewidth=1.3, **style)
    band = np.maximum(mean - spread, floor), mean + spread
    axes.fill_between(line["steps"], *band, color=style["color"], alpha=0.12, linewidth=0)


def show_steps(axes: Axes) -> Axes:
    """A horizontal axis of environment steps with few ticks, such as 200k or 1.5M."""

    def text(value: float, _: float) -> str:
        if value >= 1e6:
            return f"{value / 1e6:g}M"
        return f"{value / 1e3:g}k" if value else "0"

    axes.xaxis.set_major_locator(MaxNLocator(5))
    axes.xaxis.set_major_formatter(text)
    axes.set_xlabel("environment steps per seed")
    return axes


def show_probabilities(axis: Axis) -> Axis:
    """A logarithmic axis of probabilities with few plain numbers, even within one decade."""
    low, high = axis.get_view_interval()
    if high < 10 * low:
        axis.set_major_locator(MaxNLocator(5))
    else:
        axis.set_major_locator(LogLocator(subs=(1, 2, 5) if high < 200 * low else (1,)))
    axis.set_major_formatter("{x:g}")
    axis.set_minor_formatter(NullFormatter())
    return axis


def allowed_line(axes: Axes, value: float, label: str) -> None:
    """A dashed line at the allowed value, with a label at its right end."""
    axes.axhline(value, color=RED, linestyle="--", linewidth=1)
    place = {"xycoords": ("axes fraction", "data"), "ha": "right", "va": "bottom"}
    axes.annotate(label, (1, value), color=RED, fontsize=8, **place)


def legend_beside(axes: Axes, columns: int = 1) -> None:
    """A legend at the right of the axes."""
    place: dict[str, Any] = {"loc": "center left", "bbox_to_anchor": (1, 0.5)}
    axes.legend(fontsize=8, labelcolor=GREY, ncols=columns, **place)


def save(figure: Figure, path: Path) -> None:
    """Write the figure as PNG without matplotlib's version, which would change the file."""
    files.check_target(path)
    picture = io.BytesIO()
    with matplotlib.rc_context(STYLE):
        figure.savefig(picture, format="png", metadata={"Software": None})
    files.write_atomically(path, picture.getvalue())
