"""The paper's anatomy of the conservatism (fig:anatomy): c_B and P of each seed of the paper's update.

c_B / l^2 = (1/epsilon - 1) (sigma/l)^2 - (1 - mu/l)^2 of the unshaped cost, with the moments of
each update, averaged over the second half of training. A seed with c_B > 0 is outside Cantelli's
bound: only the slack of the inequality keeps its P below epsilon.
"""

from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator

from canary.reporting import figures
from canary.reporting.results import Results
from canary.studies import table
from canary.studies.store import StoredStudy
from canary.terminal.formatting import Line, Number

SEEDS = 30  # in the paper
INSIDE = {"EcoAnt": 0, "PointGoal2500": 0, "IcyLake": 22}
"""Number of seeds inside Cantelli's bound, as the paper reports."""
COLOURS = {"EcoAnt": figures.BLUE, "PointGoal2500": figures.GREEN, "IcyLake": "#e08a2c"}
ABOUT = (
    "c_B/ℓ² is Cantelli's constraint on the cost over the second half of training; inside means "
    "c_B ≤ 0.\nPublished rows are of 30 seeds."
)


def view(study: StoredStudy) -> table.View:
    lines: list[Line] = []
    for environment, rows in table.by_environment(study.rows).items():
        lines += table.row_lines(rows, _cells)
        if (paper := rows[0].about["paper"]) and environment in INSIDE:
            published = {
                "row": f"*{environment}, published*",
                "inside Cantelli's bound": f"{INSIDE[environment]} of {SEEDS}",
                "P ≤ ε": f"{round(paper['safe'] * SEEDS)} of {SEEDS}",
            }
            lines.append(published)
    own = table.own_update(study.shown, "IcyLake", "canary")
    bounds = [] if own is None else own.each("cantelli")
    inside = sum(bound <= 0 for bound in bounds)
    claim = table.verdict(
        "most seeds of IcyLake end inside (22 of 30)",
        f"{inside} of {len(bounds)} with the authors' reading",
        2 * inside > len(bounds),
    )
    return table.View(f"{ABOUT}\n{claim}", lines, _figure(study.shown) if study.shown else None)


def _cells(row: Results) -> Line:
    bound, violation = row.each("cantelli"), row.each("violation")
    safe = sum(p <= (row.epsilon or 0) for p in violation)
    return {
        "inside Cantelli's bound": f"{sum(b <= 0 for b in bound)} of {len(bound)}",
        "P ≤ ε": f"{safe} of {len(violation)}",
        "median c_B/ℓ²": Number(table.median(bound)),
        "median P": Number(table.median(violation), epsilon=row.epsilon),
    }


def _figure(rows: list[Results]) -> Figure:
    """All environments in one panel, as in the paper, with a point per seed."""
    with figures.canvas(1, 1, (7.5, 4.0)) as (figure, grid):
        axes, ends = grid[0, 0], [-1.0, 1.0]
        for row in rows:
            points = row.pairs("cantelli", "violation")
            x, y = [bound for bound, _ in points], [max(p, table.LOWEST) for _, p in points]
            ends += x
            small = any("hidden" in one for one in row.about["overrides"])
            style = {"color": COLOURS.get(row.environment, figures.GREY), "s": 26, "linewidths": 1}
            style["label"] = f"{row.environment}, {row.about['preset']}{', 64-64' if small else ''}"
            style["marker"] = "o" if row.about["preset"] == "authors" else "x"
            axes.scatter(x, y, **style, **({"facecolors": "none"} if small else {}))
        axes.axvline(0, color=figures.GREY, linewidth=1, linestyle="--")
        note = f"the paper:\n{INSIDE['IcyLake']} of {SEEDS} seeds\nof IcyLake here"
        place = {"xycoords": "axes fraction", "va": "top", "fontsize": 8, "color": figures.GREY}
        axes.annotate(note, (0.02, 0.97), **place)
        for epsilon in table.thresholds(rows):
            figures.allowed_line(axes, epsilon, f"ε = {epsilon:g}")
        axes.set_xscale("symlog", linthresh=1)
        axes.xaxis.set_major_locator(FixedLocator([-100, -10, -1, 0, 1, 2, 5, 10, 20, 50, 100]))
        axes.xaxis.set_major_formatter("{x:g}")
        axes.set_xlim(min(ends) * 1.3, max(ends) * 1.6)  # room at the edges
        axes.set(yscale="log", ylabel=f"P, second half (at least {table.LOWEST:g})")
        axes.set_xlabel("c_B / ℓ²  (right of 0: outside Cantelli's bound)")
        figures.show_probabilities(axes.yaxis)
        figures.legend_beside(axes)
    return figure
