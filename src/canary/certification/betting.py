"""Bounds on the mean of a bounded cost by betting, valid at all times together (Waudby-Smith and
Ramdas 2023).

To test "the mean is at least m", bet on smaller costs: the capital

    K_n(m) = prod_i 1 + l_i (m - C_i),    0 <= l_i <= SAFETY / (b - m),   C_i <= b

is a nonnegative supermartingale if E[C] >= m, whatever l_i is made of earlier episodes, and exceeds
1/alpha at any time with probability at most alpha (Ville 1939). K_n grows with m, so the upper
bound is the smallest m with K_n(m) >= 1/alpha. The lower bound comes from bets on larger costs, 1 +
l_i (C_i - m) with l_i <= SAFETY / m, and needs costs >= 0.

The bets aim at the limit, which is to be decided: l = d / (s^2 + d^2) makes the capital grow fastest
if the mean is d away from the limit and the variance is s^2. The estimates of both begin at the
scale of the limit. The standard error of the mean is added to d, so that a mean near the limit is
bet on too.
"""

import math

import numpy as np
from jaxtyping import Float

SAFETY = 0.75  # of the largest safe bet: one episode then loses at most a factor of 4
HALVINGS = 60

Costs = Float[np.ndarray, "episode"]


def is_apart(costs: Costs, limit: float, cost_bound: float, confidence: float, mean: float) -> bool:
    """Whether a number is outside the bounds on the mean; six times faster than the bounds."""
    if mean >= cost_bound:
        return True
    bets, goal = aimed_bets(costs, limit), -math.log(1 - confidence)
    return max(_on_larger(bets, costs, mean), _on_smaller(bets, costs, mean, cost_bound)) >= goal


def _on_larger(bets: Costs, costs: Costs, mean: float) -> float:
    """The log capital of bets on costs above `mean`."""
    return float(np.log1p(np.minimum(bets, SAFETY / mean) * (costs - mean)).sum())


def _on_smaller(bets: Costs, costs: Costs, mean: float, cost_bound: float) -> float:
    stakes = np.minimum(bets, SAFETY / max(cost_bound - mean, 1e-300))
    return float(np.log1p(stakes * (mean - costs)).sum())


def mean_bounds(
    costs: Costs, limit: float, cost_bound: float, confidence: float
) -> tuple[float, float]:
    """Lower and upper bound on the mean of costs between 0 and the bound, in the order in which
    they were played."""
    bets, goal = aimed_bets(costs, limit), -math.log(1 - confidence)
    lower, above = 0.0, float(cost_bound)
    below, upper = 0.0, float(cost_bound)
    for _ in range(HALVINGS):
        middle = (lower + above) / 2
        is_larger = middle > 0 and _on_larger(bets, costs, middle) >= goal
        lower, above = (middle, above) if is_larger else (lower, middle)
        middle = (below + upper) / 2
        is_smaller = _on_smaller(bets, costs, middle, cost_bound) >= goal
        below, upper = (below, middle) if is_smaller else (middle, upper)
    return lower, upper


def aimed_bets(costs: Costs, limit: float) -> Costs:
    """The bet on each episode, a function of those before it."""
    count = np.arange(1, len(costs) + 1)
    before = np.concatenate([[0.0], costs[:-1]]) if len(costs) else costs
    mean = (limit + np.cumsum(before)) / count
    squares = (2 * limit**2 + np.cumsum(before**2)) / count
    variance = np.maximum(squares - mean**2, 0) + (limit / count) ** 2
    distance = np.abs(limit - mean) + np.sqrt(variance / count)
    return distance / (variance + distance**2)
