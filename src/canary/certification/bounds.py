"""Bounds on the law of the episode cost C from the costs of n episodes.

**Valid at all times together**, so one may stop after any episode. Bet against a hypothesis with a
capital of 1. If the hypothesis holds, the capital is a nonnegative supermartingale, so it ever
reaches 1/alpha with probability at most alpha (Ville 1939). The set of values that were never
refuted in this way contains the true value with confidence 1 - alpha.

Probability (Robbins 1970). Against "P >= p", bet on smaller rates q from Beta(a, b) truncated at p.
After k violations in n episodes the capital is the mean likelihood ratio of q to p:

    M_n(p) = E_q[ q^k (1-q)^(n-k) | q <= p ] / (p^k (1-p)^(n-k))
           = B(k+a, n-k+b) I_p(k+a, n-k+b) / ( B(a, b) I_p(a, b) p^k (1-p)^(n-k) )

Bets on rates above p bound P from below. With a = 1/2 and b = a (1-p)/p the bets have mean p and are
bold if p is small; both verdicts need about as many episodes as a fixed plan that knows P.

Mean of a cost C in [0, b] (Waudby-Smith and Ramdas 2023). Against "E[C] >= m", bet on smaller costs:

    K_n(m) = prod_i 1 + l_i (m - C_i),    0 <= l_i <= SAFETY / (b - m)

where l_i may depend on earlier episodes. From below: 1 + l_i (C_i - m), l_i <= SAFETY / m. The bet
l = d / (s^2 + d^2) makes the capital grow fastest if the mean is d away from the limit and the
variance is s^2. Both are estimated from earlier episodes and start at the scale of the limit. The
standard error of the mean is added to d, so that there are bets on a mean near the limit.

**From order statistics** X(1) >= X(2) >= ... of the costs, at one look. With
VaR_s = inf{x : P(C > x) <= s}: if k violations in n episodes would show P <= s, then VaR <= X(k+1);
if k would show P > s, then VaR >= X(k). Each statement has the confidence of the bound on P.

The tail mean of the worst share s (CVaR for s < 1, the mean for s = 1) needs the largest possible
cost b. Integrate an upper bound on the survival function S(x) = P(C > x), as Anderson (1969) did
for the mean:

    CVaR_s = min_x x + E[(C - x)+] / s  <=  min_j X(k_j+1) + (1/s) integral_{X(k_j+1)}^b S_up(x) dx
    S_up(x) = u_j for X(k_j+1) <= x < X(k_{j-1}+1),  u_j = Clopper-Pearson bound of k_j in n at alpha / J

over J order statistics k_j = 0, 1, 2, ... in geometric progression, all valid together
(Bonferroni). A band of equal width (Dvoretzky-Kiefer-Wolfowitz) would put a mass of order 1/sqrt(n)
at b; this one puts about log(J/alpha)/n there. The lower bound needs only costs >= 0:

    CVaR_s = integral_0^b min(1, S(x) / s) dx  >=  the same with S_low(x) = l_j for X(k_{j+1}) <= x < X(k_j)

with l_j the Clopper-Pearson lower bound of k_j >= 1 events in n at alpha / J.
"""

import math
from bisect import bisect_right
from collections.abc import Callable
from typing import Any, Literal

import numpy as np
from jaxtyping import Float, Int
from scipy.special import betainc, betaincc, betaln, xlog1py, xlogy

from canary.numerics.statistics import Numbers, clopper_pearson_lower, clopper_pearson_upper

Side = Literal["below", "above"]
"""The values on which the bets are placed."""
Costs = Float[np.ndarray, "episode"]

SHAPE = 0.5  # a
SAFETY = 0.75  # share of the largest safe bet: an episode loses at most a factor of 4
HALVINGS = 60  # exceeds the resolution of a float
RATIO = 1.2  # of successive order statistics: smaller loses confidence, larger resolution


def log_evidence(
    violations: Numbers, episodes: Numbers, rate: Numbers, side: Side
) -> Float[np.ndarray, "..."]:
    """log M_n(rate): the evidence for a P below (above) `rate`, which lies within (0, 1)."""
    k, n, p = (np.asarray(value, float) for value in (violations, episodes, rate))
    b = SHAPE * (1 - p) / p
    part = betainc if side == "below" else betaincc
    average = part(k + SHAPE, n - k + b, p)
    with np.errstate(divide="ignore"):  # on underflow the evidence is -inf
        kept = np.where(average < np.finfo(float).tiny, 0.0, average)
        after = betaln(k + SHAPE, n - k + b) + np.log(kept)
        before = betaln(SHAPE, b) + np.log(part(SHAPE, b, p))
    return np.asarray(after - before - xlogy(k, p) - xlog1py(n - k, -p))


def anytime_upper(
    violations: Numbers, episodes: Numbers, confidence: float
) -> Float[np.ndarray, "..."]:
    """P is at most this, with one-sided confidence for all numbers of episodes together."""
    return _rate_bound(violations, episodes, confidence, "below", 1.0)


def anytime_lower(
    violations: Numbers, episodes: Numbers, confidence: float
) -> Float[np.ndarray, "..."]:
    """P is at least this, with one-sided confidence for all numbers of episodes together."""
    return _rate_bound(violations, episodes, confidence, "above", 0.0)


def _rate_bound(
    violations: Numbers, episodes: Numbers, confidence: float, side: Side, end: float
) -> Float[np.ndarray, "..."]:
    k, n = np.broadcast_arrays(np.asarray(violations, float), np.asarray(episodes, float))
    seen = np.divide(k, n, out=np.zeros(k.shape), where=n > 0)

    def is_refuted(rate: np.ndarray) -> np.ndarray:
        inside = np.clip(rate, 1e-300, 1 - 1e-16)
        return (rate != end) & (log_evidence(k, n, inside, side) >= -np.log(1 - confidence))

    return _first_refuted(seen, np.full(k.shape, end), is_refuted)


def mean_bounds(
    costs: Costs, limit: float, cost_bound: float, confidence: float
) -> tuple[float, float]:
    """Lower and upper bound on the mean of costs in [0, cost_bound], in the order played."""
    is_above, is_below = _refuting(costs, limit, cost_bound, confidence)
    lower = _first_refuted(cost_bound, 0.0, is_above)
    return float(lower), float(_first_refuted(0.0, cost_bound, is_below))


def excludes_mean(
    costs: Costs, limit: float, cost_bound: float, confidence: float, mean: float
) -> bool:
    """Whether a number is outside `mean_bounds`, without their bisection."""
    is_above, is_below = _refuting(costs, limit, cost_bound, confidence)
    return mean >= cost_bound or is_above(mean) or is_below(mean)


def _refuting(
    costs: Costs, limit: float, cost_bound: float, confidence: float
) -> list[Callable[[float], bool]]:
    """Two functions of m, whether K_n(m) >= 1/alpha: with bets above m, and with bets below m."""
    bets, enough = bets_on(costs, limit), -math.log(1 - confidence)

    def is_refuted(mean: float, sign: int, room: float) -> bool:
        stakes = sign * np.minimum(bets, SAFETY / max(room, 1e-300))
        return bool(np.log1p(stakes * (costs - mean)).sum() >= enough)

    return [
        lambda mean: is_refuted(mean, 1, mean),
        lambda mean: is_refuted(mean, -1, cost_bound - mean),
    ]


def bets_on(costs: Costs, limit: float) -> Costs:
    """The bet on each episode, a function of earlier episodes."""
    count = np.arange(1, len(costs) + 1)
    before = np.concatenate([[0.0], costs])[:-1]
    mean = (limit + np.cumsum(before)) / count
    squares = (2 * limit**2 + np.cumsum(before**2)) / count
    variance = np.maximum(squares - mean**2, 0) + (limit / count) ** 2
    distance = np.abs(limit - mean) + np.sqrt(variance / count)
    return distance / (variance + distance**2)


def _first_refuted(kept: Any, refuted: Any, is_refuted: Callable[[Any], Any]) -> Any:
    """The refuted value nearest to a kept one, by bisection."""
    for _ in range(HALVINGS):
        middle = (kept + refuted) / 2
        gone = is_refuted(middle)
        kept, refuted = np.where(gone, kept, middle), np.where(gone, middle, refuted)
    return refuted


def value_at_risk_bound(
    costs: Costs, share: float, confidence: float, bound: Callable[[int, int, float], Any]
) -> float | None:
    """An upper (lower) bound on VaR from a bound on P, a function of (violations, episodes,
    confidence); None if there are too few episodes."""
    count = len(costs)
    within = bisect_right(range(count + 1), share, key=lambda k: bound(k, count, confidence))
    return float(np.sort(costs)[count - within]) if 1 <= within <= count else None


def tail_mean_upper(costs: Costs, share: float, cost_bound: float, confidence: float) -> float:
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


def tail_mean_lower(costs: Costs, share: float, confidence: float) -> float:
    """The mean cost of the worst `share` of episodes is at least this, if no cost is negative."""
    if len(costs) == 0:
        return 0.0
    ranks = geometric_levels(len(costs)) + 1
    points = np.sort(costs)[::-1][ranks - 1].astype(float)  # `ranks` episodes cost this or more
    survival = clopper_pearson_lower(ranks, len(costs), 1 - (1 - confidence) / len(ranks))
    widths = points - np.append(points[1:], 0.0)
    return float((widths * np.minimum(survival / share, 1.0)).sum())


def geometric_levels(episodes: int) -> Int[np.ndarray, "level"]:
    """0, 1, 2, ... up to episodes - 1, in about geometric progression."""
    count = int(np.log(max(episodes, 1)) / np.log(RATIO)) + 1
    powers = np.floor(RATIO ** np.arange(count)).astype(int)
    return np.unique(np.concatenate([[0], powers[powers < episodes], [episodes - 1]]))
