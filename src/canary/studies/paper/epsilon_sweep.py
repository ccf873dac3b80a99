"""The paper's sweep over epsilon (fig:eps_sweep): dynamics, calibration, and the time in which the
violation rate falls from 0.3 to 0.1."""

import matplotlib
import numpy as np
from matplotlib.figure import Figure

from canary.reporting.figures import GREY, canvas, show_steps
from canary.studies import table
from canary.studies.page import Line, Numbers, Page, Paths, Row
from canary.studies.paper.training_curves import curve, draw_curve
from canary.studies.store import RATE_EPISODES


def save(page: Page) -> Paths:
    data = {row.name: _calibration(row) for row in page.shown}
    return page.write(
        "P is of the second half of training (± standard error over seeds). The collapse is the "
        f"median time\nin which the violation rate of the last {RATE_EPISODES} episodes fell from "
        "0.3 to 0.1, over the seeds where it did.\nThe paper (500 seeds): P settles 2-4 times below "
        f"ε, and the collapse takes about 20,000 steps at every ε.\n{table.ABOUT_FINAL}",
        page.lines(lambda row: _cells(row, data[row.name])),
        list(data.values()),
        _figure(page.shown, data) if data else None,
    )


def _calibration(row: Row) -> Numbers:
    values, times = table.numbers(row), row.each("collapse_steps")
    return values | {
        "below_threshold": values["epsilon"] / values["violation"] if values["violation"] else None,
        "collapse_steps": table.middle(times),
        "collapsed_seeds": len(times),
    }


def _cells(row: Row, values: Numbers) -> Line:
    usual, collapse = table.cells(row, values), table.shown(values["collapse_steps"], ",.0f")
    return {
        "ε": f"{row.epsilon:g}",
        "P": usual["P"],
        "P, whole training": usual["P, whole training"],
        "ε / P": table.shown(values["below_threshold"], ".1f"),
        "J": usual["J"],
        "collapse, steps": f"{collapse} ({values['collapsed_seeds']} of {values['seeds']})",
        **table.final_cells(values),
        **row.size,
    }


def _figure(rows: list[Row], data: dict[str, Numbers]) -> Figure:
    """A panel of curves for each family of rows, and a panel of where they end."""
    families: dict[str, list[Row]] = {}
    for row in rows:
        families.setdefault(row.name.rpartition("-")[0], []).append(row)
    count = 1 + len(families)
    with canvas(1, count, (3.9 * count, 3.4)) as (figure, grid):
        *panels, last = grid[0]
        for axes, (family, members) in zip(panels, families.items(), strict=True):
            for row, shade in zip(members, np.linspace(0, 0.9, len(members)), strict=True):
                colour = matplotlib.colormaps["viridis"](shade)
                label = f"ε = {row.epsilon:g}"
                draw_curve(axes, curve(row), "violation", 0.0, color=colour, label=label)
            show_steps(axes).set_title(f"{family}: P(cost > {members[0].limit:g})")
            axes.legend(fontsize=8)
            ends = [data[row.name] for row in members if data[row.name]["violation"] is not None]
            x, y = [one["epsilon"] for one in ends], [max(one["violation"], 1e-5) for one in ends]
            errors = [one["violation_error"] or 0.0 for one in ends]
            last.errorbar(x, y, yerr=errors, marker="o", linewidth=1, label=family)
        thresholds = sorted(one["epsilon"] for one in data.values())
        diagonal = thresholds[0], thresholds[-1]
        last.plot(diagonal, diagonal, color=GREY, linestyle="--", linewidth=1, label="P = ε")
        last.set(xscale="log", yscale="log", xlabel="ε", title="converged P (at least 1e-5)")
        last.legend(fontsize=8)
    return figure
