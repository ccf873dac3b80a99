"""The paper's figure of training (fig:benchmark): return and violation probability over steps."""

import numpy as np
from matplotlib.figure import Figure

from canary.reporting.blocks import curve, rates
from canary.reporting.figures import RED, canvas, draw_curve, legend_beside, show_steps
from canary.studies.store import StoredRow, StoredStudy
from canary.studies.table import View, by_environment, cells, row_lines, thresholds

FLOOR = 1e-3  # where the logarithmic axis ends
DASHES = {"fast": "-", "paper": "--", "authors": ":"}
ABOUT = (
    "Lines are means over seeds, bands one standard deviation, in blocks of training; a rate "
    f"below {FLOOR:g} is\ndrawn there. Dashed: the `paper` preset; dotted: `authors`."
)


def view(study: StoredStudy) -> View:
    figure = _figure(study.shown) if study.shown else None
    names = ("P", "whole P", "J")
    lines = row_lines(study.rows, lambda row: {name: cells(row)[name] for name in names})
    return View(ABOUT, lines, figure)


def _figure(rows: list[StoredRow]) -> Figure:
    groups = by_environment(rows)
    methods = list(dict.fromkeys(row.about["algorithm"] for row in rows))
    with canvas(len(groups), 2, (9, 2.6 * len(groups))) as (figure, grid):
        for (environment, here), (left, right) in zip(groups.items(), grid, strict=True):
            for row in here:
                line = curve(rates(row.blocks), "return", "violation")
                style = {"label": row.label, "linestyle": DASHES[row.about["preset"]]}
                style["color"] = f"C{methods.index(row.about['algorithm'])}"
                draw_curve(left, line, "return", -np.inf, **style)
                draw_curve(right, line, "violation", FLOOR, **style)
            for epsilon in thresholds(here):
                right.axhline(epsilon, color=RED, linestyle="--", linewidth=1)
            right.set(yscale="log", ylim=(FLOOR, 1))
            show_steps(left).set_title(f"{environment}: return")
            limit = here[0].constraint.limit
            show_steps(right).set_title(f"P(cost > {limit:g}); dashed red: ε")
            legend_beside(right)
    return figure
