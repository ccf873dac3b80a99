"""Bounds on the tail of the episode cost C from order statistics: Value-at-Risk, its conditional
mean, and the mean.

VaR_eps = inf{x : P(C > x) <= eps}. Let X(1) >= X(2) >= ... be the costs. If k violations in n
episodes would show P <= eps, then VaR <= X(k+1); if k would show P > eps, then VaR >= X(k). The
bounds on P may be those of a fixed sample or anytime ones; either way the statement is about one
event, {C >= VaR} or {C > VaR}, so its confidence carries over.

The tail mean of the worst share s (CVaR for s = eps, the mean for s = 1) needs the largest possible
cost b and is bounded by integrating an upper bound on the survival function S(x) = P(C > x), as
Anderson (1969) did for the mean:

    CVaR_s = min_x x + E[(C - x)+] / s  <=  min_j X(k_j+1) + (1/s) integral_{X(k_j+1)}^b S_up(x) dx
    S_up(x) = u_j for X(k_j+1) <= x < X(k_{j-1}+1),  u_j = Clopper-Pearson bound of k_j in n at alpha / J

over J order statistics k_j = 0, 1, 2, ... in geometric progression, all valid together
(Bonferroni). A band of equal width (Dvoretzky-Kiefer-Wolfowitz) would give the tail a mass of order
1/sqrt(n) at b; this one gives it about log(J/alpha)/n. From below, costs >= 0 are enough:

    CVaR_s = integral_0^b min(1, S(x) / s) dx  >=  the same with S_low(x) = l_j for X(k_{j+1}) <= x < X(k_j)

with l_j the Clopper-Pearson lower bound of k_j >= 1 events in n at alpha / J.
"""

from bisect import bisect_right
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from canary.numerics.statistics import clopper_pearson_lower, clopper_pearson_upper

RATIO = 1.2  # of successive order statistics: smaller costs confidence, larger costs resolution

Bound = Callable[[int, int, float], Any]
"""(violations, episodes, confidence) -> bound on P."""


def value_at_risk_bound(
    costs: Float[np.ndarray, "episode"], epsilon: float, confidence: float, bound: Bound
) -> float | None:
    """An upper (lower) bound on VaR from one on P; None if there are too few episodes."""
    place = len(costs) - counts_within(bound, len(costs), epsilon, confidence)
    return float(np.sort(costs)[place]) if 0 <= place < len(costs) else None


@lru_cache(maxsize=1024)  # all policies of a certificate ask the same
def counts_within(bound: Bound, episodes: int, epsilon: float, confidence: float) -> int:
    """How many of the counts 0, 1, ..., episodes have a bound <= epsilon."""
    counts = range(episodes + 1)
    return bisect_right(counts, epsilon, key=lambda k: bound(k, episodes, confidence))


def tail_mean_upper(
    costs: Float[np.ndarray, "episode"], share: float, cost_bound: float, confidence: float
) -> float:
    """The mean cost of the worst `share` of episodes is at most this, if none can cost more than
    `cost_bound`."""
    episodes = len(costs)
    if episodes == 0:
        return float(cost_bound)
    levels = geometric_levels(episodes)
    points = np.sort(costs)[::-1][levels].astype(float)  # descending
    survival = clopper_pearson_upper(levels, episodes, 1 - (1 - confidence) / len(levels))
    widths = np.concatenate([[cost_bound], points[:-1]]) - points
    candidates = points + np.cumsum(widths * survival) / share
    return float(min(candidates.min(), cost_bound))


def tail_mean_lower(costs: Float[np.ndarray, "episode"], share: float, confidence: float) -> float:
    """The mean cost of the worst `share` of episodes is at least this, if no cost can be
    negative."""
    if len(costs) == 0:
        return 0.0
    ranks = geometric_levels(len(costs)) + 1
    # Descending: so many episodes cost this or more
    points = np.sort(costs)[::-1][ranks - 1].astype(float)
    survival = clopper_pearson_lower(ranks, len(costs), 1 - (1 - confidence) / len(ranks))
    widths = points - np.append(points[1:], 0.0)
    return float((widths * np.minimum(survival / share, 1.0)).sum())


def geometric_levels(episodes: int) -> Int[np.ndarray, "level"]:
    """0, 1, 2, ... up to episodes - 1, in about geometric progression."""
    count = int(np.log(max(episodes, 1)) / np.log(RATIO)) + 1
    powers = np.floor(RATIO ** np.arange(count)).astype(int)
    return np.unique(np.concatenate([[0], powers[powers < episodes], [episodes - 1]]))
