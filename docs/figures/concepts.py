"""The figures of docs/concepts.md: `python docs/figures/concepts.py` writes
docs/images/{risk_measures,tiers}.png.

risk_measures: one law of the episode cost, and what P(C > l), VaR, CVaR, Cantelli's bound and the
shaped bound say about it. tiers: the three kinds of trust-region steps in a plane, computed by the
solver that training uses.
"""

from pathlib import Path

import jax.numpy as jnp
import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Circle

from canary.constraints import Tier
from canary.numerics.costs import shaped
from canary.numerics.trust_region import solve
from canary.reporting.figures import BLUE, GREEN, GREY, RED, canvas, save

IMAGES = Path(__file__).parents[1] / "images"
LIMIT, EPSILON, DEAD_ZONE = 10.0, 0.05, 0.6
COSTS = np.arange(0, 31)


def law() -> np.ndarray:
    """Mostly cheap episodes and a thin tail of dear ones."""
    cheap, dear = np.exp(-(((COSTS - 3.0) / 2.0) ** 2)), np.exp(-(((COSTS - 11.0) / 3.0) ** 2))
    return 0.955 * cheap / cheap.sum() + 0.045 * dear / dear.sum()


def cantelli(costs: np.ndarray, chances: np.ndarray) -> float:
    """sigma^2 / (sigma^2 + (1 - mu)^2) of a cost in limits: a bound on P(C >= l) if mu < 1."""
    mean = chances @ costs
    variance = chances @ (costs - mean) ** 2
    return float(variance / (variance + (1 - mean) ** 2))


def draw_measures(axes: Axes) -> None:
    chances = law()
    above = COSTS > LIMIT
    value_at_risk = COSTS[np.searchsorted(np.cumsum(chances), 1 - EPSILON)]
    excess = chances @ np.maximum(COSTS - value_at_risk, 0)
    tail_mean = value_at_risk + excess / EPSILON
    axes.bar(COSTS[~above], chances[~above], color=GREY, width=0.8)
    axes.bar(COSTS[above], chances[above], color=RED, width=0.8)
    axes.axvline(LIMIT, color=RED, linestyle="--", linewidth=1)
    axes.text(LIMIT + 0.2, 0.205, "limit", color=RED)
    marks = (
        (value_at_risk, "VaR, the worst 5% begin", BLUE),
        (tail_mean, "CVaR, their mean", GREEN),
    )
    for height, (place, text, colour) in zip((0.15, 0.12), marks, strict=True):
        axes.plot([place, place], [0, height], color=colour, linewidth=1.4)
        axes.text(place + 0.2, height, f"{text}, {place:.1f}", color=colour)
    lines = [
        f"P(C > limit)               {chances[above].sum():.3f}",
        f"shaped bound, d = {DEAD_ZONE}      "
        f"{cantelli(shaped(COSTS / LIMIT, DEAD_ZONE), chances):.3f}",
        f"Cantelli's bound           {cantelli(COSTS / LIMIT, chances):.3f}",
        f"Markov's bound             {chances @ COSTS / LIMIT:.3f}",
    ]
    place = {"transform": axes.transAxes, "ha": "right", "va": "top"}
    axes.text(0.98, 0.98, "\n".join(lines), family="monospace", fontsize=8, **place)
    axes.set_xlabel("cost of an episode")
    axes.set_ylabel("probability")
    axes.set_xlim(-0.7, 24)


def draw_tier(axes: Axes, values: tuple[float, float], title: str) -> None:
    """The unit ball, what each constraint forbids, and the step that the solver takes."""
    rows = np.array([[0.95, 0.3], [0.55, 0.83], [0.9, -0.45]])  # reward, bound, mean
    solution = solve(jnp.asarray(rows @ rows.T), jnp.asarray(values), 0.5)
    step = rows.T @ np.asarray(solution.coefficients)
    grid = np.linspace(-1.6, 1.6, 400)
    x, y = np.meshgrid(grid, grid)
    for row, value, colour in zip(rows[1:], values, (RED, BLUE), strict=True):
        constraint = value + row[0] * x + row[1] * y
        axes.contourf(x, y, constraint > 0, levels=[0.5, 1.5], colors=[colour], alpha=0.14)
        axes.contour(x, y, constraint, levels=[0], colors=[colour], linewidths=1)
    axes.add_patch(Circle((0, 0), 1, fill=False, color=GREY))
    axes.annotate("", rows[0], (0, 0), arrowprops={"arrowstyle": "->", "color": GREEN})
    axes.text(*(rows[0] * 1.05), "reward", color=GREEN, fontsize=8)
    arrow = {"arrowstyle": "-|>", "color": "black", "linewidth": 2}
    axes.annotate("", step, (0, 0), arrowprops=arrow)
    axes.set_title(f"{title}\n{Tier(int(solution.tier)).label}", fontsize=9)
    axes.set(xlim=(-1.6, 1.6), ylim=(-1.6, 1.6), xticks=[], yticks=[], aspect="equal")


def main() -> None:
    with canvas(1, 1, (8, 3.4)) as (figure, grid):
        draw_measures(grid[0, 0])
        save(figure, IMAGES / "risk_measures.png")
    with canvas(1, 3, (9, 3.8)) as (figure, grid):
        draw_tier(grid[0, 0], (0.3, -0.1), "one step can meet both constraints")
        draw_tier(grid[0, 1], (1.4, 0.2), "the bound (red) is out of reach")
        draw_tier(grid[0, 2], (1.4, 1.3), "so is the mean (blue)")
        save(figure, IMAGES / "tiers.png")


if __name__ == "__main__":
    main()
