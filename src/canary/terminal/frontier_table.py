"""The exact frontier as tables, from the report of `canary frontier`."""

from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text

from canary.terminal.formatting import digits, number, table

LABELS = {"var": "VaR", "cvar": "CVaR", "cantelli": "Cantelli"}


def print_frontier(console: Console, report: dict[str, Any]) -> None:
    """The optima at the asked epsilon, the frontier over epsilon, and the trained policies."""
    title = f"   limit {report['limit']:g}, every number exact"
    console.print(Text.assemble((f"best returns on {report['env']}", "bold"), (title, "dim")))
    console.print(optima_table(report))
    console.print(frontier_table(report))
    console.print(shaped_table(report))
    if report["runs"]:
        console.print(
            Text.assemble(("trained policies", "bold"), ("   gap: best return - return", "dim"))
        )
        console.print(seeds_table(report))


def optima_table(report: dict[str, Any]) -> Table:
    names = ("constraint", "best return", "price", "P(C > limit)", "mean cost", "deviation")
    lines = _titled(f"at epsilon {report['epsilon']:g}", *names)
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
        lines.add_row(
            label, _places(best["return"]), _places(free - best["return"]), chance, *moments
        )
    return lines


def frontier_table(report: dict[str, Any]) -> Table:
    lines = _titled("best return over epsilon", "epsilon", *LABELS.values())
    for epsilon in sorted({point["epsilon"] for point in report["frontier"]}):
        points = [point for point in report["frontier"] if point["epsilon"] == epsilon]
        best = {point["constraint"]: point["return"] for point in points}
        style = "bold" if epsilon == report["epsilon"] else None
        lines.add_row(f"{epsilon:g}", *(_places(best[name]) for name in LABELS), style=style)
    return lines


def shaped_table(report: dict[str, Any]) -> Table:
    lines = _titled("Cantelli on the shaped cost", "dead zone", "best return", "P(C > limit)")
    for point in report["shaped"]:
        chance = point["violation_probability"]
        risk = "" if chance is None else _chance(chance, report["epsilon"])
        lines.add_row(f"{point['dead_zone']:g}", _places(point["return"]), risk)
    return lines


def _titled(title: str, *columns: str) -> Table:
    lines = table(*columns)
    lines.title, lines.title_justify, lines.title_style = title, "left", "dim"
    return lines


def seeds_table(report: dict[str, Any]) -> Table:
    """One line per seed, and the mean over seeds where there are several.

    Where a cost was shaped, its dead zone and guarantee take the place of the raw mean and B.
    """
    gaps = [f"{label} gap" for label in LABELS.values()]
    is_shaped = any(row["dead_zone"] is not None for run in report["runs"] for row in run["seeds"])
    bound = ("dead zone", "bound") if is_shaped else ("mean cost", "B")
    lines = table("run", "seed", "return", "P(C > limit)", *bound, *gaps, "gap at own P")
    lines.columns[0].justify = "left"
    for run, label in zip(report["runs"], _run_labels(report), strict=True):
        seeds = run["seeds"]
        for row in seeds:
            lines.add_row(label, str(row["seed"]), *_seed_cells(row, report["epsilon"], is_shaped))
        if len(seeds) > 1:
            keys = [key for key in seeds[0] if all(isinstance(row[key], float) for row in seeds)]
            mean = seeds[0] | {key: float(np.mean([row[key] for row in seeds])) for key in keys}
            lines.add_row(
                label, "mean", *_seed_cells(mean, report["epsilon"], is_shaped), style="bold"
            )
    return lines


def _run_labels(report: dict[str, Any]) -> list[str]:
    """The algorithm, numbered in the order of the runs where several have the same."""
    names = [run["algorithm"] for run in report["runs"]]
    numbered = [f"{name} #{names[: index + 1].count(name)}" for index, name in enumerate(names)]
    return [name if names.count(name) == 1 else numbered[index] for index, name in enumerate(names)]


def _seed_cells(row: dict[str, Any], epsilon: float, is_shaped: bool) -> list[str | Text]:
    chance = row["violation_probability"]
    bound = [number(row["cost_mean"]), number(row["cantelli_value"])]
    if is_shaped:
        zone, promise = row["dead_zone"], row["shaped_bound"]
        bound = ["-", "-"] if zone is None else [f"{zone:.2f}", _chance(promise, epsilon)]
    return [
        _places(row["return"]),
        Text(_chance(chance, epsilon), style="green" if chance <= epsilon else "red"),
        *bound,
        *(_places(row[f"gap_to_{name}"]) for name in LABELS),
        _places(row["gap_at_own_violation"]),
    ]


def _places(value: float | None) -> str:
    return "-" if value is None else f"{round(value, 4) + 0.0:.4f}"


def _chance(value: float, epsilon: float) -> str:
    """Enough digits for epsilon, and powers of ten for what would read as zero."""
    places = digits(epsilon) + 1
    return f"{value:.{places}f}" if value >= 10**-places else f"{value:.0e}"
