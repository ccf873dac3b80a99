"""The figure of docs/relative-variance.md: `python docs/figures/relative_variance.py` writes
docs/images/relative_variance.png.

Everything in it is exact: the relative variance of a batch of 100 episodes of IcyLake for every
constraint, of its value and of its gradient, where violations are epsilon / 2. Above one policy at
growing limits, below policies that grow safer.
"""

from pathlib import Path
from typing import NamedTuple

import matplotlib
import numpy as np

from canary.environments.icy_lake import IcyLake
from canary.exact import FiniteMDP, cost_law, from_environment
from canary.reporting.figures import GREY, canvas, save
from canary.studies.paper.gaussian_tail import gaussian_tail
from canary.studies.paper.relative_variance import fitted_exponent
from canary.theory import (
    ScoredLaw,
    cantelli,
    cvar,
    indicator,
    scored_law,
    with_violation,
)

LIMIT, EPISODES = 5.5, 100
COLOURS = matplotlib.colormaps["viridis"]
LINES = {
    "indicator": ("#3a9a5b", "-", indicator),
    "CVaR": ("#7d4fa8", "-", cvar),
    "Cantelli": ("#2f6db5", "-", cantelli),
    **{
        f"shaped, d = {d:g}": (
            COLOURS(0.25 + 0.75 * d), "--", lambda law, limit, epsilon, d=d: cantelli(law, limit, epsilon, d)
        )
        for d in (0.0, 0.3, 0.6, 0.9)
    },
}  # fmt: skip


class Point(NamedTuple):
    """A policy at a limit and a threshold."""

    limit: float
    epsilon: float
    law: ScoredLaw


def fixed_policy(mdp: FiniteMDP) -> list[Point]:
    """One policy; the limit moves, and epsilon is twice the violation probability there (ass:slack
    with c = 1/2)."""
    policy = with_violation(mdp, LIMIT, 0.01)
    law, exact = scored_law(mdp, policy), cost_law(mdp, policy)
    limits = np.arange(2.5, 13)
    return [Point(limit, 2 * exact.violation(limit), law) for limit in limits]


def fixed_limit(mdp: FiniteMDP) -> list[Point]:
    """One limit; for every epsilon the policy that uses half of it."""
    return [
        Point(LIMIT, epsilon, scored_law(mdp, with_violation(mdp, LIMIT, epsilon / 2)))
        for epsilon in np.geomspace(0.0002, 0.5, 12)
    ]


def draw(panels, points: list[Point]) -> None:
    epsilons = np.array([point.epsilon for point in points])
    for name, (colour, style, make) in LINES.items():
        each = [make(point.law, point.limit, point.epsilon) for point in points]
        numbers = [
            [constraint.active_probability for constraint in each],
            [constraint.noise_of_value(EPISODES) for constraint in each],
            [constraint.noise_of_gradient(EPISODES) for constraint in each],
        ]
        for axes, values in zip(panels, numbers, strict=True):
            axes.plot(epsilons, values, color=colour, linestyle=style, marker=".", label=name)
        small = epsilons < 0.1
        fits = [fitted_exponent(epsilons[small], np.array(values)[small]) for values in numbers]
        print(f"{name:<16}" + "  ".join(f"{slope:+.2f} ± {half:.2f}" for slope, half in fits))


def report(points: list[Point]) -> None:
    """The noise of Cantelli's constraint, and the Gaussian tail."""
    for limit, epsilon, law in points:
        constraint, violation = cantelli(law, limit, epsilon), law.violation(limit)
        tail = gaussian_tail(law.mean, law.variance**0.5, limit, violation)
        print(
            f"epsilon {epsilon:.5f}  limit {limit:g}  f {law.violation(0):.2f}  "
            f"value {constraint.noise_of_value(EPISODES):.3f}  "
            f"gradient {constraint.noise_of_gradient(EPISODES):.3f}  z {tail.deviations:.2f}, Gauss "
            f"1e{tail.predicted:.1f}, short by 1e{tail.short_by:.1f}"
        )


def main() -> None:
    mdp = from_environment(IcyLake())
    families = {
        "one policy, the limit moves": fixed_policy(mdp),
        "limit 5.5, the policy moves": fixed_limit(mdp),
    }
    with canvas(2, 3, (11, 6.4)) as (figure, grid):
        for row, (name, points) in zip(grid, families.items(), strict=True):
            print(name)
            draw(row, points)
            report(points)
            titles = (
                "share q of episodes that count",
                "relative variance of the value",
                "... of the gradient",
            )
            for axes, title in zip(row, titles, strict=True):
                axes.set(xscale="log", yscale="log", xlabel="threshold epsilon", title=title)
            row[0].set_ylabel(name, color=GREY)
        grid[0, 2].legend(loc="center left", bbox_to_anchor=(1, 0.5), fontsize=8)
        save(figure, Path(__file__).parents[1] / "images" / "relative_variance.png")


if __name__ == "__main__":
    main()
