"""The paper's sweep over epsilon (fig:eps_sweep): dynamics, calibration, and the time in which the
violation rate falls from 0.3 to 0.1."""

import matplotlib
import numpy as np
from matplotlib.figure import Figure

from canary.reporting.blocks import curve, rates
from canary.reporting.figures import GREY, canvas, draw_curve, show_steps
from canary.reporting.statistics import mean_over_seeds, standard_error
from canary.reporting.summary import RATE_EPISODES
from canary.studies import table
from canary.studies.store import StoredRow, StoredStudy
from canary.terminal.formatting import Line, Number

ABOUT = (
    f"{table.ABOUT}\nThe collapse is the median time in which the violation rate of the last "
    f"{RATE_EPISODES} episodes fell from 0.3 to 0.1, over the\nseeds where it did. The paper (500 "
    "seeds): P settles 2-4 times below ε, and the collapse takes about 20,000 steps at every ε."
)


def view(study: StoredStudy) -> table.View:
    lines = table.row_lines(study.rows, _cells)
    return table.View(ABOUT, lines, _figure(study.shown) if study.shown else None)


def _cells(row: StoredRow) -> Line:
    times, violation = row.each("collapse_steps"), mean_over_seeds(row.each("violation"))
    return {
        "ε": f"{row.epsilon:g}",
        "ε / P": Number(row.epsilon / violation if row.epsilon and violation else None),
        **table.cells(row),
        "collapse, steps": Number(table.median(times)),
        "collapsed": f"{len(times)} of {len(row.seeds)}",
    }


def _figure(rows: list[StoredRow]) -> Figure:
    """A panel of curves for each family of rows, and a panel of where they end."""
    families: dict[str, list[StoredRow]] = {}
    for row in rows:
        families.setdefault(row.name.rpartition("-")[0], []).append(row)
    count = 1 + len(families)
    with canvas(1, count, (3.9 * count, 3.4)) as (figure, grid):
        *panels, last = grid[0]
        for axes, (family, members) in zip(panels, families.items(), strict=True):
            for row, shade in zip(members, np.linspace(0, 0.9, len(members)), strict=True):
                style = {"color": matplotlib.colormaps["viridis"](shade)}
                line = curve(rates(row.blocks), "violation")
                draw_curve(axes, line, "violation", 0.0, label=f"ε = {row.epsilon:g}", **style)
            limit = members[0].constraint.limit
            show_steps(axes).set_title(f"{family}: P(cost > {limit:g})")
            axes.legend(fontsize=8)
            ends = [(row.epsilon, p) for row in members if (p := row.each("violation"))]
            y = [max(float(np.mean(p)), 1e-5) for _, p in ends]
            errors = [standard_error(p) or 0.0 for _, p in ends]
            style = {"marker": "o", "linewidth": 1, "label": family}
            last.errorbar([x for x, _ in ends], y, yerr=errors, **style)
        diagonal = [each(table.thresholds(rows)) for each in (min, max)]
        last.plot(diagonal, diagonal, color=GREY, linestyle="--", linewidth=1, label="P = ε")
        last.set(xscale="log", yscale="log", xlabel="ε", title="converged P (at least 1e-5)")
        last.legend(fontsize=8)
    return figure
