"""The exact frontier as a figure and files, from the report of `canary frontier`.

Curves show the best return under each constraint against epsilon. A trained policy is a point at its
exact violation probability and return; the distance to the VaR curve above it is what it loses for
the risk it takes. The second panel shows the best return under the shaped bound over the dead zone.
"""

from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from canary.reporting.figures import BLUE, GREEN, GREY, RED, STYLE, save
from canary.runs.files import make_folder, write_json
from canary.terminal.tables import LABELS

MEANINGS = {"var": "P(C > limit) ≤ ε", "cvar": "CVaR ≤ limit", "cantelli": "Cantelli bound ≤ ε"}
COLOURS = {"var": GREEN, "cvar": GREY, "cantelli": BLUE}
RUN_COLOURS = ("#d98324", "#7a4fa3", "#1f9e9e", "#b0437f", "#6b6b2a", "#222222")
RUN_MARKERS = "osD^vP"
BELOW: dict[str, Any] = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.14), "ncols": 2}


def frontier_figure(report: dict[str, Any]) -> Figure:
    with plt.rc_context(STYLE):
        figure, (left, right) = plt.subplots(
            ncols=2, figsize=(10.4, 5.2), width_ratios=(1.55, 1), layout="constrained"
        )
        draw_frontier(left, report)
        draw_dead_zones(right, report)
    return figure


def draw_frontier(axes: Axes, report: dict[str, Any]) -> None:
    """Best return against epsilon, and trained policies at (their P, their return)."""
    epsilon = report["epsilon"]
    (left, right), (bottom, top) = _span(report), _heights(report)
    axes.set_xscale("log")
    axes.set_xlim(left, right)
    axes.set_ylim(bottom, top)
    axes.axvspan(epsilon, right, color=RED, alpha=0.05, linewidth=0)
    axes.axvline(epsilon, color=RED, linestyle="--", linewidth=1)
    axes.annotate(
        f"ε = {epsilon:g}", (epsilon, 0), xycoords=("data", "axes fraction"), xytext=(4, 4),
        textcoords="offset points", fontsize=8, color=RED,
    )  # fmt: skip
    for name in LABELS:
        _draw_curve(axes, report, name)
    for index, name in enumerate(dict.fromkeys(run["algorithm"] for run in report["runs"])):
        seeds = [row for run in report["runs"] if run["algorithm"] == name for row in run["seeds"]]
        _draw_seeds(axes, name, seeds, index)
    axes.set_xlabel(f"curves: ε       points: the policy's own P(cost > {report['limit']:g})")
    axes.set_ylabel("expected return")
    axes.set_title(
        f"{report['env']}, limit {report['limit']:g}: the best return for the risk, all exact"
    )
    axes.legend(fontsize=8, labelspacing=0.9, **BELOW)


def draw_dead_zones(axes: Axes, report: dict[str, Any]) -> None:
    """Best return under the shaped bound against the dead zone; the other constraints as lines."""
    points = [point for point in report["shaped"] if point["return"] is not None]
    x, y = ([point[key] for point in points] for key in ("dead_zone", "return"))
    axes.plot(x, y, color=BLUE, linewidth=1.6, marker="o", markersize=4, label="Cantelli, shaped")
    for name, label in LABELS.items():
        style = {"color": COLOURS[name], "linestyle": "--", "linewidth": 1}
        best = report["optima"][name]["return"]
        if best is None:
            axes.plot([], [], label=f"{label}: no policy", **style)
        else:
            axes.axhline(best, label=f"{label}: {best:.3f}", **style)
    beside = axes.get_xaxis_transform()  # x is a dead zone, y a share of the height
    style = {"rotation": 90, "ha": "center", "va": "center", "fontsize": 8, "color": GREY}
    for point in report["shaped"]:
        if point["return"] is None:
            axes.text(point["dead_zone"], 0.5, "no policy", transform=beside, **style)
    axes.set_xlim(-0.04, 0.84)
    axes.set_xticks([point["dead_zone"] for point in report["shaped"]])
    axes.set_xlabel("dead zone: the share of the limit that goes uncounted")
    axes.set_ylabel("best return")
    axes.set_title(f"at ε = {report['epsilon']:g}, with the cost shaped")
    axes.legend(fontsize=8, labelspacing=0.9, **BELOW)


def _draw_curve(axes: Axes, report: dict[str, Any], name: str) -> None:
    known = [point for point in report["frontier"] if point["return"] is not None]
    points = [point for point in known if point["constraint"] == name]
    best = report["optima"][name]["return"]
    at = "no policy" if best is None else f"{best:.3f}"
    label = f"{LABELS[name]}: best with {MEANINGS[name]}\n{at} at ε = {report['epsilon']:g}"
    x, y = ([point[key] for point in points] for key in ("epsilon", "return"))
    axes.plot(x, y, color=COLOURS[name], linewidth=1.6, marker=".", markersize=4, label=label)
    if best is not None:
        axes.plot([report["epsilon"]], [best], "o", color=COLOURS[name], markersize=5, zorder=4)


def _draw_seeds(axes: Axes, name: str, seeds: list[dict[str, Any]], index: int) -> None:
    """A point per policy; those outside the axes are hollow, at the edge."""
    chance = np.array([row["violation_probability"] for row in seeds])
    value = np.array([row["return"] for row in seeds])
    x, y = np.maximum(chance, axes.get_xlim()[0]), np.maximum(value, axes.get_ylim()[0])
    colour = RUN_COLOURS[index % len(RUN_COLOURS)]
    is_inside = (x == chance) & (y == value)
    axes.scatter(
        x, y, s=36, marker=RUN_MARKERS[index % len(RUN_MARKERS)], edgecolors=colour, zorder=5,
        clip_on=False, facecolors=[colour if inside else "white" for inside in is_inside],
        label=f"{name}, trained: {len(seeds)} seed{'s' * (len(seeds) > 1)}",
    )  # fmt: skip


def _span(report: dict[str, Any]) -> tuple[float, float]:
    """The range of epsilon, widened for the policies' own risks."""
    grid = [point["epsilon"] for point in report["frontier"]]
    chances = [row["violation_probability"] for run in report["runs"] for row in run["seeds"]]
    lowest = min([*grid, *(chance for chance in chances if chance > min(grid) / 10)])
    return lowest / 1.3, min(1.0, 1.3 * max([*grid, *chances]))


def _heights(report: dict[str, Any]) -> tuple[float, float]:
    """A range with the optima at epsilon and three quarters of the policies."""
    top = report["unconstrained_return"]
    optima = [point["return"] for point in report["optima"].values() if point["return"] is not None]
    spread = max(top - min([*optima, top]), 1e-3 * max(1.0, abs(top)))
    policies = [row["return"] for run in report["runs"] for row in run["seeds"]]
    low = min(top - 2 * spread, float(np.quantile(policies, 0.25)) if policies else top)
    return low - 0.08 * (top - low), top + 0.05 * (top - low)


def save_frontier(report: dict[str, Any], folder: Path) -> dict[str, Path]:
    """The figure and the report, frontier.png and frontier.json."""
    paths = {"figure": folder / "frontier.png", "report": folder / "frontier.json"}
    make_folder(folder)
    figure = frontier_figure(report)
    save(figure, paths["figure"])
    plt.close(figure)
    write_json(paths["report"], report)
    return paths
