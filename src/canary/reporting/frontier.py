"""The exact frontier as tables, a figure and files, from the report of `canary frontier`.

A curve shows the best return that any policy can have under one constraint, as a function of epsilon. A
trained policy is a point at its exact violation probability and return: no point can lie above the VaR
curve, and the distance below it is what the policy gives away for the risk it takes.
"""

import io
import json
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from rich.console import Console
from rich.table import Table
from rich.text import Text

from canary.errors import CanaryError
from canary.experiments import storage
from canary.experiments.formatting import digits, number, table
from canary.reporting.figures import BLUE, GREEN, GREY, RED, STYLE

LABELS = {"var": "VaR", "cvar": "CVaR", "cantelli": "Cantelli"}
MEANINGS = {"var": "P(C > limit) ≤ ε", "cvar": "CVaR ≤ limit", "cantelli": "Cantelli bound ≤ ε"}
COLOURS = {"var": GREEN, "cvar": GREY, "cantelli": BLUE}
RUN_COLOURS = ("#d98324", "#7a4fa3", "#1f9e9e", "#b0437f", "#6b6b2a", "#222222")
RUN_MARKERS = "osD^vP"


def print_frontier(console: Console, report: dict[str, Any]) -> None:
    """The optima at the asked epsilon, the frontier over epsilon, and the trained policies."""
    title = f"   limit {report['limit']:g}, every number exact"
    console.print(Text.assemble((f"best returns on {report['env']}", "bold"), (title, "dim")))
    console.print(optima_table(report))
    console.print(frontier_table(report))
    if report["runs"]:
        console.print(Text.assemble(("trained policies", "bold"), ("   gap: best return - return", "dim")))
        console.print(seeds_table(report))


def optima_table(report: dict[str, Any]) -> Table:
    lines = table("constraint", "best return", "price", "P(C > limit)", "mean cost", "deviation")
    lines.title, lines.title_justify, lines.title_style = f"at epsilon {report['epsilon']:g}", "left", "dim"
    lines.columns[0].justify = "left"
    free = report["unconstrained_return"]
    lines.add_row("none", _places(free), "-", "", "", "")
    for name, label in LABELS.items():
        best = report["optima"][name]
        if best["return"] is None:
            lines.add_row(label, "no policy", "", "", "", "")
            continue
        chance = _chance(best["violation_probability"], report["epsilon"])
        moments = [number(best[key]) for key in ("cost_mean", "cost_deviation")]
        lines.add_row(label, _places(best["return"]), _places(free - best["return"]), chance, *moments)
    return lines


def frontier_table(report: dict[str, Any]) -> Table:
    lines = table("epsilon", *LABELS.values())
    lines.title, lines.title_justify, lines.title_style = "best return over epsilon", "left", "dim"
    for epsilon in sorted({point["epsilon"] for point in report["frontier"]}):
        best = {
            point["constraint"]: point["return"]
            for point in report["frontier"]
            if point["epsilon"] == epsilon
        }
        style = "bold" if epsilon == report["epsilon"] else None
        lines.add_row(f"{epsilon:g}", *(_places(best[name]) for name in LABELS), style=style)
    return lines


def seeds_table(report: dict[str, Any]) -> Table:
    """One line per seed, and the mean over seeds where there are several."""
    gaps = [f"{label} gap" for label in LABELS.values()]
    lines = table("run", "seed", "return", "P(C > limit)", "mean cost", "B", *gaps, "gap at own P")
    lines.columns[0].justify = "left"
    for run, label in zip(report["runs"], _run_labels(report), strict=True):
        seeds = run["seeds"]
        for row in seeds:
            lines.add_row(label, str(row["seed"]), *_seed_cells(row, report["epsilon"]))
        if len(seeds) > 1:
            keys = [key for key, value in seeds[0].items() if isinstance(value, float)]
            mean = seeds[0] | {key: float(np.mean([row[key] for row in seeds])) for key in keys}
            lines.add_row(label, "mean", *_seed_cells(mean, report["epsilon"]), style="bold")
    return lines


def _run_labels(report: dict[str, Any]) -> list[str]:
    """The algorithm, numbered in the order of the runs where several have the same."""
    names = [run["algorithm"] for run in report["runs"]]
    return [
        name if names.count(name) == 1 else f"{name} #{names[: index + 1].count(name)}"
        for index, name in enumerate(names)
    ]


def _seed_cells(row: dict[str, Any], epsilon: float) -> list[str | Text]:
    chance = row["violation_probability"]
    gaps = [row[f"gap_to_{name}"] for name in LABELS]
    return [
        _places(row["return"]),
        Text(_chance(chance, epsilon), style="green" if chance <= epsilon else "red"),
        number(row["cost_mean"]),
        number(row["cantelli_value"]),
        *(_places(gap) for gap in gaps),
        _places(row["gap_at_own_violation"]),
    ]


def frontier_figure(report: dict[str, Any]) -> Figure:
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(figsize=(8.4, 4.2), layout="constrained")
        draw_frontier(axes, report)
    return figure


def draw_frontier(axes: Axes, report: dict[str, Any]) -> Axes:
    """Best return against epsilon, and trained policies at (their P, their return)."""
    epsilon = report["epsilon"]
    (left, right), (bottom, top) = _span(report), _heights(report)
    axes.set_xscale("log")
    axes.set_xlim(left, right)
    axes.set_ylim(bottom, top)
    axes.axvspan(epsilon, right, color=RED, alpha=0.05, linewidth=0)
    axes.axvline(epsilon, color=RED, linestyle="--", linewidth=1)
    for text, shift, side in ((f"ε = {epsilon:g}", 4, "left"), ("allowed", -4, "right")):
        axes.annotate(
            text, (epsilon, 0), xycoords=("data", "axes fraction"),
            xytext=(shift, 4), textcoords="offset points", ha=side, fontsize=8,
            color=RED if side == "left" else GREY,
        )  # fmt: skip
    for name in LABELS:
        _draw_curve(axes, report, name)
    for index, name in enumerate(dict.fromkeys(run["algorithm"] for run in report["runs"])):
        seeds = [row for run in report["runs"] if run["algorithm"] == name for row in run["seeds"]]
        _draw_seeds(axes, name, seeds, index)
    axes.set_xlabel(f"curves: ε       points: the policy's own P(cost > {report['limit']:g})")
    axes.set_ylabel("expected return")
    axes.set_title(f"{report['env']}, limit {report['limit']:g}: the best return for the risk, all exact")
    axes.legend(loc="center left", bbox_to_anchor=(1.02, 0.5), fontsize=8, labelspacing=0.9)
    return axes


def _draw_curve(axes: Axes, report: dict[str, Any], name: str) -> None:
    points = [
        point for point in report["frontier"] if point["constraint"] == name and point["return"] is not None
    ]
    points.sort(key=lambda point: point["epsilon"])
    if not points:
        return
    best = report["optima"][name]["return"]
    at = "no policy" if best is None else f"{best:.3f}"
    label = f"{LABELS[name]}: best with {MEANINGS[name]}\n{at} at ε = {report['epsilon']:g}"
    x, y = ([point[key] for point in points] for key in ("epsilon", "return"))
    axes.plot(x, y, color=COLOURS[name], linewidth=1.6, marker=".", markersize=4, label=label)
    if best is not None:
        axes.plot([report["epsilon"]], [best], "o", color=COLOURS[name], markersize=5, zorder=4)


def _draw_seeds(axes: Axes, name: str, seeds: list[dict[str, Any]], index: int) -> None:
    """A point per policy; those outside the axes become arrows at its edge, with their return below it."""
    (left, _), (bottom, _) = axes.get_xlim(), axes.get_ylim()
    colour = RUN_COLOURS[index % len(RUN_COLOURS)]
    chance = np.array([row["violation_probability"] for row in seeds])
    value = np.array([row["return"] for row in seeds])
    is_low, is_left = value < bottom, chance < left
    x, y = np.maximum(chance, left), np.maximum(value, bottom)
    style = {
        "s": 36,
        "color": colour,
        "edgecolors": "white",
        "linewidths": 0.6,
        "zorder": 5,
        "clip_on": False,
    }
    label = f"{name}, trained: {len(seeds)} seed{'s' * (len(seeds) > 1)}"
    for which, marker in (
        (~is_low & ~is_left, RUN_MARKERS[index % len(RUN_MARKERS)]),
        (is_left & ~is_low, "<"),
        (is_low, "v"),
    ):
        if which.any():
            axes.scatter(x[which], y[which], marker=marker, label=label, **style)
            label = None
    for here, low in zip(x[is_low], value[is_low], strict=True):
        axes.annotate(
            f"{low:.2f}",
            (here, bottom),
            xytext=(0, 6),
            textcoords="offset points",
            ha="center",
            fontsize=7,
            color=colour,
        )


def _span(report: dict[str, Any]) -> tuple[float, float]:
    """The range of epsilon, widened for policies that take more or (within reason) less risk."""
    grid = [point["epsilon"] for point in report["frontier"]]
    chances = [row["violation_probability"] for run in report["runs"] for row in run["seeds"]]
    lowest = min([*grid, *(chance for chance in chances if chance > min(grid) / 10)])
    return lowest / 1.3, min(1.0, 1.3 * max([*grid, *chances]))


def _heights(report: dict[str, Any]) -> tuple[float, float]:
    """The optima at epsilon, with as much room again below them, and three quarters of the policies."""
    top = report["unconstrained_return"]
    optima = [point["return"] for point in report["optima"].values() if point["return"] is not None]
    spread = max(top - min([*optima, top]), 1e-3 * max(1.0, abs(top)))
    policies = [row["return"] for run in report["runs"] for row in run["seeds"]]
    low = min(top - 2 * spread, float(np.quantile(policies, 0.25)) if policies else top)
    return low - 0.08 * (top - low), top + 0.05 * (top - low)


def save_frontier(report: dict[str, Any], folder: Path) -> dict[str, Path]:
    """frontier.png, frontier.csv, frontier.json and, if policies were compared, frontier-policies.csv."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CanaryError(f"Cannot make {folder} ({error.strerror}); choose another place.") from error
    figure, picture = frontier_figure(report), io.BytesIO()
    figure.savefig(picture, format="png", dpi=200)
    plt.close(figure)
    policies = [
        {"run_dir": run["run_dir"], "algorithm": run["algorithm"], **row}
        for run in report["runs"]
        for row in run["seeds"]
    ]
    files = {
        "figure": ("frontier.png", picture.getvalue()),
        "frontier": ("frontier.csv", pl.DataFrame(report["frontier"]).write_csv().encode()),
        "report": ("frontier.json", (json.dumps(report, indent=2, allow_nan=False) + "\n").encode()),
    }
    if policies:
        files["policies"] = ("frontier-policies.csv", pl.DataFrame(policies).write_csv().encode())
    for name, data in files.values():
        storage.write_atomically(folder / name, data)
    return {what: folder / name for what, (name, _) in files.items()}


def _places(value: float | None) -> str:
    return "-" if value is None else f"{round(value, 4) + 0.0:.4f}"


def _chance(value: float, epsilon: float) -> str:
    """Enough digits for epsilon, and powers of ten for what would read as zero."""
    places = digits(epsilon) + 1
    return f"{value:.{places}f}" if value >= 10**-places else f"{value:.0e}"
