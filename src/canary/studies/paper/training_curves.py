"""The paper's figure of training (fig:benchmark): return and violation probability over steps, with
the published values at the right edge."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from canary.reporting.figures import RED, canvas, draw_curve, legend_beside, show_steps
from canary.reporting.results import Results
from canary.reporting.statistics import over_seeds
from canary.studies.paper.claims import own_update, verdict
from canary.studies.store import StoredStudy
from canary.studies.table import View, by_environment, cells, row_lines, thresholds
from canary.terminal.formatting import Number

FLOOR = 1e-3  # where the logarithmic axis ends
DASHES = {"fast": ":", "paper": "--", "authors": "-"}
ABOUT = (
    "Lines are means over seeds, bands one standard deviation, in blocks of training; a rate "
    f"below {FLOOR:g} is\ndrawn there. Dashed: the `paper` preset; solid: `authors`. Diamonds: the "
    "published means over the second half."
)


def view(study: StoredStudy) -> View:
    figure = _figure(study.shown) if study.shown else None
    return View("\n".join((ABOUT, *_claims(study))), row_lines(study.rows, _cells), figure)


def _cells(row: Results) -> dict:
    ours, paper = cells(row), row.about["paper"] or {}
    published = {
        "published P": Number(paper.get("violation"), epsilon=row.epsilon),
        "published J": Number(paper.get("reward")),
    }
    return {name: ours[name] for name in ("P", "whole P", "jitter", "J")} | published


def _claims(study: StoredStudy) -> list[str]:
    """Of P and jitter, where several methods have the paper's update."""
    found = []
    for environment, rows in by_environment(study.shown).items():
        own = own_update(rows, environment, "canary")
        others = [row for row in rows if row.about["algorithm"] != "canary"]
        if own is None or not others:
            continue
        lowest = [
            (over_seeds(own.each(name)).mean or 0.0)
            <= min(over_seeds(row.each(name)).mean or 0.0 for row in others)
            for name in ("violation", "jitter")
        ]
        names = ", ".join(sorted({row.about["algorithm"] for row in others}))
        missed = [name for name, yes in zip(("P", "jitter"), lowest, strict=True) if not yes]
        here = f"beside {names} on {environment}" + f", not in {' and '.join(missed)}" * bool(
            missed
        )
        claim = "Canary has the lowest P and the lowest jitter of all methods"
        found.append(verdict(claim, here, not missed))
    return found


def _figure(rows: list[Results]) -> Figure:
    groups = by_environment(rows)
    methods = list(dict.fromkeys(row.about["algorithm"] for row in rows))
    with canvas(len(groups), 2, (9, 2.6 * len(groups))) as (figure, grid):
        for (environment, here), (left, right) in zip(groups.items(), grid, strict=True):
            published = {}
            for row in here:
                line = row.curve("return", "violation")
                style = {"label": row.label, "linestyle": DASHES[row.about["preset"]]}
                style["color"] = f"C{methods.index(row.about['algorithm'])}"
                draw_curve(left, line, "return", -np.inf, **style)
                draw_curve(right, line, "violation", FLOOR, **style)
                published[style["color"]] = row.about["paper"]
            end = max(row.steps for row in here)
            for colour, paper in published.items():
                if paper:
                    _show_published(left, end, paper, "reward", colour)
                    _show_published(right, end, paper, "violation", colour)
            for epsilon in thresholds(here):
                right.axhline(epsilon, color=RED, linestyle="--", linewidth=1)
            right.set(yscale="log", ylim=(FLOOR, 1))
            show_steps(left).set_title(f"{environment}: return")
            limit = here[0].constraint.limit
            show_steps(right).set_title(f"P(cost > {limit:g}); dashed red: ε")
            legend_beside(right)
    return figure


def _show_published(
    axes: Axes, end: float, paper: dict[str, float], name: str, colour: str
) -> None:
    """A diamond with two standard errors, right of where training ends."""
    error = 1.96 * paper[f"{name}_error"]
    style = {"fmt": "D", "markersize": 4, "markerfacecolor": "white", "linewidth": 1}
    axes.errorbar(1.04 * end, paper[name], yerr=error, color=colour, **style)
