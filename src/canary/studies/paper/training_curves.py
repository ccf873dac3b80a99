"""The paper's figure of training (fig:benchmark): return and violation probability over steps, with
the published values at the right edge."""

import numpy as np
from matplotlib.figure import Figure

from canary.reporting.figures import RED, canvas, draw_curve, legend_beside, show_steps
from canary.reporting.results import Results
from canary.reporting.statistics import over_seeds
from canary.studies import table
from canary.studies.store import StoredStudy
from canary.terminal.formatting import Number

FLOOR = 1e-3  # lower end of the logarithmic axis
DASHES = {"fast": ":", "paper": "--", "authors": "-"}
ABOUT = (
    "Lines are means over seeds, bands one standard deviation, in blocks of training; a rate "
    f"below {FLOOR:g} is\ndrawn there. Dashed: the `paper` preset; solid: `authors`, dash-dotted with a setting "
    "changed. Diamonds:\nthe published means over the second half."
)


def view(study: StoredStudy) -> table.View:
    figure = _figure(study.shown) if study.shown else None
    return table.View(
        "\n".join((ABOUT, *_claims(study))), table.row_lines(study.rows, _cells), figure
    )


def _cells(row: Results) -> dict:
    ours, paper = table.cells(row), row.about["paper"] or {}
    published = {
        "published P": Number(paper.get("violation"), epsilon=row.epsilon),
        "published J": Number(paper.get("reward")),
    }
    return {name: ours[name] for name in ("P", "whole P", "jitter", "J")} | published


def _claims(study: StoredStudy) -> list[str]:
    """The claims about P and jitter, if several methods are trained with the paper's update."""

    def mean(row: Results, name: str) -> float:
        return over_seeds(row.each(name)).mean or 0.0

    found = []
    for environment, rows in table.by_environment(study.shown).items():
        own = table.own_update(rows, environment, "canary")
        others = [row for row in rows if row.about["algorithm"] != "canary"]
        if own is None or not others:
            continue
        missed = [
            label
            for label, name in (("P", "violation"), ("jitter", "jitter"))
            if mean(own, name) > min(mean(row, name) for row in others)
        ]
        names = ", ".join(sorted({row.about["algorithm"] for row in others}))
        here = f"beside {names} on {environment}"
        if missed:
            here += f", not in {' and '.join(missed)}"
        claim = "Canary has the lowest P and the lowest jitter of all methods"
        found.append(table.verdict(claim, here, not missed))
    return found


def _figure(rows: list[Results]) -> Figure:
    groups = table.by_environment(rows)
    methods = list(dict.fromkeys(row.about["algorithm"] for row in rows))
    with canvas(len(groups), 2, (9, 2.6 * len(groups))) as (figure, grid):
        for (environment, here), (left, right) in zip(groups.items(), grid, strict=True):
            published = {}
            for row in here:
                line = row.curve("return", "violation")
                dashes = "-." if row.about["overrides"] else DASHES[row.about["preset"]]
                style = {"label": row.label, "linestyle": dashes}
                style["color"] = f"C{methods.index(row.about['algorithm'])}"
                draw_curve(left, line, "return", -np.inf, **style)
                draw_curve(right, line, "violation", FLOOR, **style)
                published[style["color"]] = row.about["paper"]
            end = 1.04 * max(row.steps for row in here)  # right of where training ends
            style = {"fmt": "D", "markersize": 4, "markerfacecolor": "white", "linewidth": 1}
            for colour, paper in published.items():
                for axes, name in ((left, "reward"), (right, "violation")):
                    if paper:
                        error = 1.96 * paper[f"{name}_error"]
                        axes.errorbar(end, paper[name], yerr=error, color=colour, **style)
            for epsilon in table.thresholds(here):
                right.axhline(epsilon, color=RED, linestyle="--", linewidth=1)
            right.set(yscale="log", ylim=(FLOOR, 1))
            show_steps(left).set_title(f"{environment}: return")
            limit = here[0].constraint.limit
            show_steps(right).set_title(f"P(cost > {limit:g}); dashed red: ε")
            legend_beside(right)
    return figure
