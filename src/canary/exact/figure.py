"""The exact frontier as a figure and files, from the report of `canary frontier`.

Curves show the best return under each constraint against epsilon. A trained policy is a point at its
exact violation probability and return; the distance to the VaR curve above it is what it loses for
the risk it takes. The second panel shows the best return under the shaped bound over the dead zone.
"""

from itertools import cycle
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
BELOW: dict[str, Any] = {
    "loc": "upper center", "bbox_to_anchor": (0.5, -0.14), "ncols": 2, "fontsize": 8, "labelspacing": 0.9
}  # fmt: skip


def save_frontier(report: dict[str, Any], folder: Path) -> dict[str, Path]:
    """The figure and the report, frontier.png and frontier.json."""
    paths = {"figure": folder / "frontier.png", "report": folder / "frontier.json"}
    make_folder(folder)
    figure = frontier_figure(report)
    save(figure, paths["figure"])
    plt.close(figure)
    write_json(paths["report"], report)
    return paths


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
    epsilon, limit = report["epsilon"], report["limit"]
    points = [point for point in report["frontier"] if point["return"] is not None]
    for name, label in LABELS.items():
        own = [point for point in points if point["constraint"] == name]
        x, y = ([point[key] for point in own] for key in ("epsilon", "return"))
        best = report["optima"][name]["return"]
        at = "no policy" if best is None else f"{best:.3f}"
        label = f"{label}: best with {MEANINGS[name]}\n{at} at ε = {epsilon:g}"
        axes.plot(x, y, color=COLOURS[name], linewidth=1.6, marker=".", markersize=4, label=label)
        if best is not None:
            axes.plot([epsilon], [best], "o", color=COLOURS[name], markersize=5, zorder=4)
    seeds: dict[str, list[tuple[float, float]]] = {}
    for run in report["runs"]:
        own = [(row["violation_probability"], row["return"]) for row in run["seeds"]]
        seeds.setdefault(run["algorithm"], []).extend(own)
    left, right = _span(report, [chance for own in seeds.values() for chance, _ in own])
    bottom, top = _heights(report, [value for own in seeds.values() for _, value in own])
    for (name, own), colour, marker in zip(seeds.items(), cycle(RUN_COLOURS), cycle("osD^vP")):
        shown = np.maximum(own, (left, bottom))  # outside the axes: hollow, at the edge
        inside = (shown == np.array(own)).all(axis=1)
        axes.scatter(
            *shown.T, s=36, marker=marker, edgecolors=colour, zorder=5, clip_on=False,
            facecolors=[colour if one else "white" for one in inside],
            label=f"{name}, trained: {len(own)} seed{'s' * (len(own) > 1)}",
        )  # fmt: skip
    axes.axvspan(epsilon, right, color=RED, alpha=0.05, linewidth=0)
    axes.axvline(epsilon, color=RED, linestyle="--", linewidth=1)
    axes.set(xscale="log", xlim=(left, right), ylim=(bottom, top), ylabel="expected return")
    axes.set_xlabel(
        f"curves: ε (dashed: {epsilon:g})       points: the policy's P(cost > {limit:g})"
    )
    axes.set_title(f"{report['env']}, limit {limit:g}: the best return for the risk, all exact")
    axes.legend(**BELOW)


def draw_dead_zones(axes: Axes, report: dict[str, Any]) -> None:
    """Best return under the shaped bound against the dead zone; the other constraints as lines."""
    points = [point for point in report["shaped"] if point["return"] is not None]
    x, y = ([point[key] for point in points] for key in ("dead_zone", "return"))
    axes.plot(x, y, color=BLUE, linewidth=1.6, marker="o", markersize=4, label="Cantelli, shaped")
    for name, label in LABELS.items():
        best = report["optima"][name]["return"]
        height, at = (np.nan, "no policy") if best is None else (best, f"{best:.3f}")
        style = {"color": COLOURS[name], "linestyle": "--", "linewidth": 1}
        axes.axhline(height, label=f"{label}: {at}", **style)
    axes.set(xlim=(-0.04, 0.84), xticks=[point["dead_zone"] for point in report["shaped"]])
    axes.set(xlabel="dead zone: the share of the limit that goes uncounted", ylabel="best return")
    axes.set_title(f"at ε = {report['epsilon']:g}, with the cost shaped")
    axes.legend(**BELOW)


def _span(report: dict[str, Any], chances: list[float]) -> tuple[float, float]:
    """The range of epsilon, widened for the policies' own risks."""
    grid = [point["epsilon"] for point in report["frontier"]]
    lowest = min([*grid, *(chance for chance in chances if chance > min(grid) / 10)])
    return lowest / 1.3, min(1.0, 1.3 * max([*grid, *chances]))


def _heights(report: dict[str, Any], returns: list[float]) -> tuple[float, float]:
    """A range with the optima at epsilon and three quarters of the policies."""
    top = report["unconstrained_return"]
    optima = [point["return"] for point in report["optima"].values() if point["return"] is not None]
    spread = max(top - min([*optima, top]), 1e-3 * max(1.0, abs(top)))
    low = min(top - 2 * spread, float(np.quantile(returns, 0.25)) if returns else top)
    return low - 0.08 * (top - low), top + 0.05 * (top - low)
