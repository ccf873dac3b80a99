"""The paper's sweep over epsilon (fig:eps_sweep): training curves, the converged P, and the time in
which the violation rate falls from 0.3 to 0.1."""

import math

import matplotlib
import numpy as np
from matplotlib.figure import Figure

from canary.reporting.figures import GREY, canvas, draw_curve, show_steps
from canary.reporting.results import RATE_EPISODES, Results
from canary.reporting.statistics import over_seeds
from canary.studies import table
from canary.studies.store import StoredStudy
from canary.terminal.formatting import Line, Number

ABOUT = (
    f"{table.ABOUT}\nThe collapse is the median time in which the violation rate of the last "
    f"{RATE_EPISODES} episodes fell from 0.3 to 0.1, over the\nseeds where it did. The paper has 500 "
    "seeds. In the figure the band is its ε/4 to ε/2, the dashed line its collapse."
)
CALIBRATION = 2, 4
"""The paper's range of epsilon / P after convergence."""
COLLAPSE = 20_000
"""Steps of the collapse in the paper, at every epsilon."""
FLOOR = 1e-5  # where the axis of P ends


def view(study: StoredStudy) -> table.View:
    lines = table.row_lines(study.rows, _cells)
    authors = [row for row in study.shown if row.about["preset"] == "authors"]
    about = "\n".join((ABOUT, *_claims(authors)))
    return table.View(about, lines, _figure(study.shown) if study.shown else None)


def _claims(rows: list[Results]) -> list[str]:
    """The claims about calibration and collapse, for the paper's update."""
    low, high = CALIBRATION
    found = [(row.constraint.share, over_seeds(row.each("violation")).mean) for row in rows]
    ratios = [epsilon / p if p else math.inf for epsilon, p in found if p is not None]
    times = [time for row in rows if (time := table.median(row.each("collapse_steps")))]
    if not ratios or not times:
        return []
    inside = sum(low <= ratio <= high for ratio in ratios)
    return [
        table.verdict(
            f"P settles {low}-{high} times below ε",
            f"{min(ratios):.1f} times or more, in the range at {inside} of "
            f"{len(ratios)} thresholds",
            inside == len(ratios),
        ),
        table.verdict(
            f"the collapse takes about {COLLAPSE:,} steps at every ε",
            f"{min(times):,.0f} to {max(times):,.0f} steps",
            min(times) >= COLLAPSE / 2 and max(times) <= COLLAPSE * 2,
        ),
    ]


def _cells(row: Results) -> Line:
    times, violation = row.each("collapse_steps"), over_seeds(row.each("violation")).mean
    return {
        "ε": f"{row.epsilon:g}",
        "ε / P": Number(row.epsilon / violation if row.epsilon and violation else None),
        **table.cells(row),
        "collapse, steps": Number(table.median(times)),
        "collapsed": f"{len(times)} of {len(row.seeds)}",
    }


def _figure(rows: list[Results]) -> Figure:
    """Panels: the curves of each family of rows, the converged P, and the time of the collapse."""
    families: dict[str, list[Results]] = {}
    for row in rows:
        families.setdefault(row.name.rpartition("-")[0], []).append(row)
    count = 2 + len(families)
    with canvas(1, count, (3.7 * count, 3.4)) as (figure, grid):
        *panels, last, collapse = grid[0]
        for axes, (family, members) in zip(panels, families.items(), strict=True):
            for row, shade in zip(members, np.linspace(0, 0.9, len(members)), strict=True):
                style = {"color": matplotlib.colormaps["viridis"](shade)}
                line = row.curve("violation")
                draw_curve(axes, line, "violation", 0.0, label=f"ε = {row.epsilon:g}", **style)
            limit = members[0].constraint.limit
            show_steps(axes).set_title(f"{family}: P(cost > {limit:g})")
            axes.legend(fontsize=8)
            ends = [(row.epsilon, p) for row in members if (p := row.each("violation"))]
            y = [max(float(np.mean(p)), FLOOR) for _, p in ends]
            errors = [over_seeds(p).error or 0.0 for _, p in ends]
            style = {"marker": "o", "linewidth": 1, "label": family}
            last.errorbar([x for x, _ in ends], y, yerr=errors, **style)
            times = [(row.epsilon, table.median(row.each("collapse_steps"))) for row in members]
            known = {epsilon: time for epsilon, time in times if epsilon and time is not None}
            collapse.plot(list(known), list(known.values()), "o-", linewidth=1, label=family)
        diagonal = [each(table.thresholds(rows)) for each in (min, max)]
        below = [[epsilon / factor for epsilon in diagonal] for factor in CALIBRATION]
        last.fill_between(diagonal, *below, color=GREY, alpha=0.25, linewidth=0, label="paper")
        last.plot(diagonal, diagonal, color=GREY, linestyle="--", linewidth=1, label="P = ε")
        last.set(xscale="log", yscale="log", xlabel="ε", title=f"converged P (at least {FLOOR:g})")
        last.set_ylim(FLOOR / 2, 1)  # an error bar may reach below 0
        collapse.axhline(COLLAPSE, color=GREY, linestyle="--", linewidth=1, label="paper")
        collapse.set(xscale="log", yscale="log", xlabel="ε", title="steps from P 0.3 to 0.1")
        for axes in (last, collapse):
            axes.legend(fontsize=8)
    return figure
