"""The paper's anatomy of the conservatism (fig:anatomy): where seeds converge, and what they violate.

c_B / l^2 = (1/epsilon - 1) (sigma/l)^2 - (1 - mu/l)^2 of the cost itself, per seed, averaged over the
second half of training, at the moments that the update saw. A seed with c_B > 0 is outside Cantelli's
bound: only the slack of the inequality keeps its P below epsilon.
"""

from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator

from canary.reporting.figures import GREY, allowed_line, show_probabilities
from canary.studies.store import StoredRow, StoredStudy
from canary.studies.table import LOWEST, View, median, row_lines, seeds_figure, thresholds
from canary.terminal.formatting import Line, Number

ABOUT = (
    "c_B/ℓ² is Cantelli's constraint on the cost over the second half of training; inside means "
    "c_B ≤ 0.\nThe paper (30 seeds each): every seed of EcoAnt and PointGoal outside, 22 of 30 "
    "of IcyLake inside; 82 of 90 seeds have P ≤ ε."
)


def view(study: StoredStudy) -> View:
    rows, title = study.shown, study.about["title"]
    figure = seeds_figure(rows, title, "cantelli", "violation", _finish) if rows else None
    return View(ABOUT, row_lines(study.rows, _cells), figure)


def _cells(row: StoredRow) -> Line:
    bound, violation = row.each("cantelli"), row.each("violation")
    safe = sum(p <= (row.epsilon or 0) for p in violation)
    return {
        "inside Cantelli's bound": f"{sum(b <= 0 for b in bound)} of {len(bound)}",
        "P ≤ ε": f"{safe} of {len(violation)}",
        "median c_B/ℓ²": Number(median(bound)),
        "median P": Number(median(violation), epsilon=row.epsilon),
    }


def _finish(axes: Axes, rows: list[StoredRow]) -> None:
    axes.axvline(0, color=GREY, linewidth=1, linestyle="--")
    for epsilon in thresholds(rows):
        allowed_line(axes, epsilon, f"ε = {epsilon:g}")
    bounds = [-1.0, 1.0, *(bound for row in rows for bound in row.each("cantelli"))]
    axes.set_xscale("symlog", linthresh=1)
    axes.xaxis.set_major_locator(FixedLocator([-100, -10, -1, 0, 1, 2, 5, 10, 20, 50, 100]))
    axes.xaxis.set_major_formatter("{x:g}")
    axes.set_xlim(min(bounds) * 1.3, max(bounds) * 1.6)  # room at the edges
    axes.set(yscale="log", ylabel=f"P, second half (at least {LOWEST:g})")
    axes.set_xlabel("c_B / ℓ²  (right of 0: outside Cantelli's bound)")
    show_probabilities(axes.yaxis)
