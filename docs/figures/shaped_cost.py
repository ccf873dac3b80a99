"""The figure of docs/shaped-cost.md: `python docs/figures/shaped_cost.py` writes
docs/images/shaped_cost.png.

Left: phi_d. Middle: the exact best return on IcyLake (limit 5.5, epsilon 0.02) over the dead zone.
Right: what it costs: the share of episodes that say something about the constraint, and the
relative variance of E[X^2] that follows.
"""

from pathlib import Path

import numpy as np

from canary.environments.icy_lake import IcyLake
from canary.exact import best_under_cantelli, best_under_cvar, best_under_var, from_environment
from canary.numerics.costs import shaped
from canary.reporting.figures import GREY, RED, canvas, save

LIMIT, EPSILON = 5.5, 0.02
DEAD_ZONES = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)


def relative_variance(law, dead_zone: float) -> float:
    """Var(X^2) / E[X^2]^2 of one episode: n episodes divide it by n."""
    square = shaped(law.support / LIMIT, dead_zone) ** 2
    mean = law.probabilities @ square
    return law.probabilities @ (square - mean) ** 2 / mean**2


def main() -> None:
    mdp, pool = from_environment(IcyLake()), []
    best = {d: best_under_cantelli(mdp, LIMIT, EPSILON, pool, dead_zone=d) for d in DEAD_ZONES}
    lines = {
        "P(C > l) <= epsilon itself": best_under_var(mdp, LIMIT, EPSILON, pool).value,
        "CVaR": best_under_cvar(mdp, LIMIT, EPSILON, pool).value,
        "Cantelli, unshaped": best_under_cantelli(mdp, LIMIT, EPSILON, pool).value,
    }
    with canvas(1, 3, (11, 3.4)) as (figure, grid):
        left, middle, right = grid[0]
        y = np.linspace(0, 1.4, 281)
        left.plot(y, y, color=GREY, linestyle=":", label="none: the paper")
        for d in (0.0, 0.3, 0.6, 0.9):
            left.plot(y, shaped(y, d), label=f"d = {d:g}")
        left.axvline(1, color=RED, linewidth=1, linestyle="--")
        left.set(xlabel="episode cost in limits, y", ylabel="phi(y)", title="Shaped cost")
        left.legend(fontsize=8)
        middle.plot(DEAD_ZONES, [best[d].value for d in DEAD_ZONES], marker="o", markersize=4)
        for (label, value), style in zip(lines.items(), ("-", "--", ":"), strict=True):
            middle.axhline(value, color=GREY, linewidth=1, linestyle=style)
            middle.annotate(label, (0.12, value), fontsize=8, color=GREY, va="bottom")
        middle.set(xlabel="dead zone d", ylabel="exact best return", title="Less conservative ...")
        shares = [float(best[d].law.violation(d * LIMIT)) for d in DEAD_ZONES]
        right.plot(DEAD_ZONES, shares, "o-", markersize=4, label="P(C > d l): episodes that count")
        noise = [relative_variance(best[d].law, d) for d in DEAD_ZONES]
        style = {"color": RED, "markersize": 4, "label": "relative variance of E[X^2]"}
        right.plot(DEAD_ZONES, noise, "s-", **style)
        right.set(xlabel="dead zone d", yscale="log", title="... and noisier")
        right.legend(fontsize=8)
        save(figure, Path(__file__).parents[1] / "images" / "shaped_cost.png")
    for d, share, variance in zip(DEAD_ZONES, shares, noise, strict=True):
        optimum = best[d]
        print(
            f"d {d:g}  J {optimum.value:.4f}  P {optimum.law.violation(LIMIT):.4f}  share "
            f"{share:.3f}  noise {variance:.1f}"
        )


if __name__ == "__main__":
    main()
