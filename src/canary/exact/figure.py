"""The exact frontier as a figure and files, from the report of `canary frontier`.

Curves show the best return under each constraint against epsilon. A trained policy is a point at its
exact violation probability and return; its distance below the VaR curve is the return that it loses
at its risk. The second panel shows the best return under the shaped bound over the dead zone.
"""

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from canary.reporting.figures import BLUE, GREEN, GREY, RED, canvas, save
from canary.runs.files import make_folder, write_json
from canary.terminal.tables import LABELS

MEANINGS = {"var": "P(C > limit) ≤ ε", "cvar": "CVaR ≤ limit", "cantelli": "Cantelli bound ≤ ε"}
COLOURS = {"var": GREEN, "cvar": GREY, "cantelli": BLUE}
BELOW: dict[str, Any] = {
    "loc": "upper center", "bbox_to_anchor": (0.5, -0.14), "ncols": 2, "fontsize": 8, "labelspacing": 0.9
}  # fmt: skip


def save_frontier(report: dict[str, Any], folder: Path) -> dict[str, Path]:
    """Write the figure and the report, frontier.png and frontier.json."""
    paths = {"figure": folder / "frontier.png", "report": folder / "frontier.json"}
    make_folder(folder)
    save(frontier_figure(report), paths["figure"])
    write_json(paths["report"], report)
    return paths


def frontier_figure(report: dict[str, Any]) -> Figure:
    with canvas(1, 2, (10.4, 5.2), width_ratios=(1.55, 1)) as (figure, grid):
        draw_frontier(grid[0, 0], report)
        draw_dead_zones(grid[0, 1], report)
    return figure


def draw_frontier(axes: Axes, report: dict[str, Any]) -> None:
    """Plot the best return against epsilon, and trained policies at (P, return)."""
    epsilon, limit = report["epsilon"], report["limit"]
    points = [point for point in report["frontier"] if point["return"] is not None]
    for name, label in LABELS.items():
        own = [point for point in points if point["constraint"] == name]
        x, y = ([point[key] for point in own] for key in ("epsilon", "return"))
        best = report["optima"][name]["return"]
        at = "no policy" if best is None else f"{best:.3f}"
        label = f"{label}: best with {MEANINGS[name]}\n{at} at ε = {epsilon:g}"
        axes.plot(x, y, color=COLOURS[name], linewidth=1.6, marker=".", label=label)
    lowest = min(point["epsilon"] for point in report["frontier"]) / 2
    for index, run in enumerate(report["runs"]):
        chances = [max(row["violation_probability"], lowest) for row in run["seeds"]]
        label = f"{run['algorithm']}, trained: {len(chances)} seed{'s' * (len(chances) > 1)}"
        style = {"s": 36, "marker": "osD^vP"[index % 6], "color": f"C{index + 1}", "zorder": 5}
        axes.scatter(chances, [row["return"] for row in run["seeds"]], label=label, **style)
    axes.axvline(epsilon, color=RED, linestyle="--", linewidth=1)
    axes.set(xscale="log", ylabel="expected return")
    axes.set_xlabel(
        f"curves: ε (dashed: {epsilon:g})       points: P(cost > {limit:g}), at least {lowest:g}"
    )
    axes.set_title(f"{report['env']}, limit {limit:g}: the best return for the risk, all exact")
    axes.legend(**BELOW)


def draw_dead_zones(axes: Axes, report: dict[str, Any]) -> None:
    """Plot the best return under the shaped bound over the dead zone; other constraints are lines."""
    points = [point for point in report["shaped"] if point["return"] is not None]
    x, y = ([point[key] for point in points] for key in ("dead_zone", "return"))
    axes.plot(x, y, color=BLUE, linewidth=1.6, marker=".", label="Cantelli, shaped")
    for name, label in LABELS.items():
        best = report["optima"][name]["return"]
        height, at = (np.nan, "no policy") if best is None else (best, f"{best:.3f}")
        style = {"color": COLOURS[name], "linestyle": "--", "linewidth": 1}
        axes.axhline(height, label=f"{label}: {at}", **style)
    axes.set_xticks([point["dead_zone"] for point in report["shaped"]])
    axes.set(xlabel="dead zone: the share of the limit that goes uncounted", ylabel="best return")
    axes.set_title(f"at ε = {report['epsilon']:g}, with the cost shaped")
    axes.legend(**BELOW)
