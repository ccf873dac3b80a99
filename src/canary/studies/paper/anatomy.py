"""The paper's anatomy of the conservatism (fig:anatomy): where seeds converge, and what they violate.

c_B / l^2 = (1/epsilon - 1) (sigma/l)^2 - (1 - mu/l)^2 of the cost itself, per seed, averaged over the
second half of training, at the moments that the update saw. A seed with c_B > 0 is outside Cantelli's
bound: only the slack of the inequality keeps its P below epsilon.
"""

from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator

from canary.reporting.figures import (
    GREY,
    allowed_line,
    canvas,
    legend_beside,
    show_probabilities,
)
from canary.studies.page import Line, Page, Paths, Row
from canary.studies.table import LOWEST, middle, probability, shown

FACES = {"paper": "none", "authors": "lightgrey"}


def save(page: Page) -> Paths:
    return page.write(
        "c_B/ℓ² is Cantelli's constraint on the cost over the second half of training; inside means "
        "c_B ≤ 0.\nThe paper (30 seeds each): every seed of EcoAnt and PointGoal outside, 22 of 30 "
        "of IcyLake inside; 82 of 90 seeds have P ≤ ε.",
        page.lines(_cells),
        [
            {
                "row": row.name,
                "environment": row.environment,
                "preset": row.about["preset"],
                "seed": seed,
                "bound": one["cantelli"],
                "violation": one["violation"],
                "epsilon": row.epsilon,
            }
            for row in page.shown
            for seed, one in row.seeds.items()
        ],
        _figure(page.shown, page.study["title"]) if page.shown else None,
    )


def _cells(row: Row) -> Line:
    bound, violation = row.each("cantelli"), row.each("violation")
    safe = sum(p <= (row.epsilon or 0) for p in violation)
    inside = f"{sum(b <= 0 for b in bound)} of {len(bound)}" if bound else "-"
    return {
        "seeds inside Cantelli's bound": inside,
        "seeds with P ≤ ε": f"{safe} of {len(violation)}" if violation else "-",
        "median c_B/ℓ²": shown(middle(bound), ".3f"),
        "median P": probability(middle(violation)),
    }


def _figure(rows: list[Row], title: str) -> Figure:
    environments = list(dict.fromkeys(row.environment for row in rows))
    bounds = [-1.0, 1.0]
    with canvas(1, 1, (5.6, 3.8)) as (figure, grid):
        axes = grid[0, 0]
        for row in rows:
            index, preset = environments.index(row.environment), row.about["preset"]
            known = [(one["cantelli"], one["violation"]) for one in row.seeds.values()]
            points = [(bound, max(p, LOWEST)) for bound, p in known if None not in (bound, p)]
            bounds += [bound for bound, _ in points]
            axes.scatter(
                [bound for bound, _ in points],
                [p for _, p in points],
                s=26,
                marker="osD^vP*X"[index % 8],
                edgecolors=f"C{index}",
                facecolors=FACES.get(preset, f"C{index}"),
                label=f"{row.environment}, `{preset}`",
            )
        axes.axvline(0, color=GREY, linewidth=1, linestyle="--")
        for epsilon in sorted({row.epsilon for row in rows if row.epsilon is not None}):
            allowed_line(axes, epsilon, f"ε = {epsilon:g}")
        axes.set_xscale("symlog", linthresh=1)
        axes.xaxis.set_major_locator(FixedLocator([-100, -10, -1, 0, 1, 2, 5, 10, 20, 50, 100]))
        axes.xaxis.set_major_formatter("{x:g}")
        axes.set_xlim(min(bounds) * 1.3, max(bounds) * 1.6)  # room at the edges
        axes.set(yscale="log", title=title, ylabel=f"P, second half (at least {LOWEST:g})")
        axes.set_xlabel("c_B / ℓ²  (right of 0: outside Cantelli's bound)")
        show_probabilities(axes.yaxis)
        legend_beside(axes)
    return figure
