"""Bounds that are valid at all times together, so that one may look after any episode and stop.

Bet against a hypothesis with a capital of 1. If the hypothesis holds, the capital is a nonnegative
supermartingale, so it ever reaches 1/alpha with probability at most alpha (Ville 1939). The values
whose hypothesis was never refuted in this way contain the truth with confidence 1 - alpha.

Probability (Robbins 1970). Against "P >= p", bet on smaller rates q from Beta(a, b) cut off at p.
After k violations in n episodes the capital is the likelihood of q against that of p, averaged:

    M_n(p) = E_q[ q^k (1-q)^(n-k) | q <= p ] / (p^k (1-p)^(n-k))
           = B(k+a, n-k+b) I_p(k+a, n-k+b) / ( B(a, b) I_p(a, b) p^k (1-p)^(n-k) )

Rates above p bound P from below. With a = 1/2 and b = a (1-p)/p the bets have mean p and are bold
where p is small: both verdicts come about as early as in a fixed plan that knows P.

Mean of a cost C in [0, b] (Waudby-Smith and Ramdas 2023). Against "E[C] >= m", bet on smaller costs:

    K_n(m) = prod_i 1 + l_i (m - C_i),    0 <= l_i <= SAFETY / (b - m)

where l_i may depend on earlier episodes. From below: 1 + l_i (C_i - m), l_i <= SAFETY / m. The bet
l = d / (s^2 + d^2) makes the capital grow fastest if the mean is d away from the limit and the
variance is s^2. Both are estimated from earlier episodes and start at the scale of the limit; the
standard error of the mean is added to d, so that a mean near the limit is bet on too.
"""

import math
from collections.abc import Callable
from typing import Any, Literal

import numpy as np
from jaxtyping import Float
from scipy.special import betainc, betaincc, betaln, xlog1py, xlogy

from canary.numerics.statistics import Numbers

Side = Literal["below", "above"]
"""Where the bets expect the truth."""
Costs = Float[np.ndarray, "episode"]

SHAPE = 0.5  # a
SAFETY = 0.75  # of the largest safe bet: one episode loses at most a factor of 4
HALVINGS = 60  # beyond the resolution of a float


def log_evidence(
    violations: Numbers, episodes: Numbers, rate: Numbers, side: Side
) -> Float[np.ndarray, "..."]:
    """log M_n(rate): the evidence for a P below (above) `rate`, which lies within (0, 1)."""
    k, n, p = (np.asarray(value, float) for value in (violations, episodes, rate))
    b = SHAPE * (1 - p) / p
    part = betainc if side == "below" else betaincc
    average = part(k + SHAPE, n - k + b, p)
    with np.errstate(divide="ignore"):  # an underflow is no evidence: -inf
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
    bets, goal = bets_on(costs, limit), -math.log(1 - confidence)

    def bound(side: Side, kept: float, end: float) -> float:
        return float(
            _first_refuted(
                kept, end, lambda mean: _capital(bets, costs, mean, cost_bound, side) >= goal
            )
        )

    return bound("above", cost_bound, 0.0), bound("below", 0.0, cost_bound)


def excludes_mean(
    costs: Costs, limit: float, cost_bound: float, confidence: float, mean: float
) -> bool:
    """Whether a number is outside `mean_bounds`, without computing them."""
    bets, goal = bets_on(costs, limit), -math.log(1 - confidence)
    sides: tuple[Side, Side] = ("above", "below")
    return mean >= cost_bound or any(
        _capital(bets, costs, mean, cost_bound, side) >= goal for side in sides
    )


def bets_on(costs: Costs, limit: float) -> Costs:
    """The bet on each episode, a function of those before it."""
    count = np.arange(1, len(costs) + 1)
    before = np.concatenate([[0.0], costs])[:-1]
    mean = (limit + np.cumsum(before)) / count
    squares = (2 * limit**2 + np.cumsum(before**2)) / count
    variance = np.maximum(squares - mean**2, 0) + (limit / count) ** 2
    distance = np.abs(limit - mean) + np.sqrt(variance / count)
    return distance / (variance + distance**2)


def _capital(bets: Costs, costs: Costs, mean: float, cost_bound: float, side: Side) -> float:
    """log K_n(mean)."""
    room = cost_bound - mean if side == "below" else mean
    stakes = np.minimum(bets, SAFETY / max(room, 1e-300))
    gains = mean - costs if side == "below" else costs - mean
    return float(np.log1p(stakes * gains).sum())


def _first_refuted(kept: Any, refuted: Any, is_refuted: Callable[[Any], Any]) -> Any:
    """The first refuted value on the way from a kept one, by bisection."""
    for _ in range(HALVINGS):
        middle = (kept + refuted) / 2
        gone = is_refuted(middle)
        kept, refuted = np.where(gone, kept, middle), np.where(gone, middle, refuted)
    return refuted
