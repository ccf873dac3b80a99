"""Bounds on a probability that are valid at all times, so that one may look after any episode and
stop.

Betting against "P >= p" (Ville 1939, Robbins 1970): start with capital 1, and let q be smaller
rates, drawn from Beta(a, b) cut off at p. After k violations in n episodes the capital is the
likelihood of q against that of p, averaged over q:

    M_n(p) = E_q[ q^k (1-q)^(n-k) | q <= p ] / (p^k (1-p)^(n-k))
           = B(k+a, n-k+b) I_p(k+a, n-k+b) / ( B(a, b) I_p(a, b) p^k (1-p)^(n-k) )

If P >= p this is a nonnegative supermartingale, so it ever reaches 1/alpha with probability at most
alpha, however often one looks (Ville's inequality). Hence the set of p with M_n(p) < 1/alpha
contains P at all times together with confidence 1 - alpha, and its upper end bounds P. Rates above
p bound P from below in the same way. With a = 1/2 and b = a (1-p)/p the bets have mean p and are
bold where p is small. Both verdicts then come about as early as in a fixed plan that knows P.
"""

from typing import Literal

import numpy as np
from jaxtyping import Float
from scipy.special import betainc, betaincc, betaln, xlog1py, xlogy

from canary.numerics.binomial import Numbers

Side = Literal["below", "above"]
SHAPE = 0.5  # a
HALVINGS = 60  # of an interval of length <= 1: beyond the resolution of a float near 1


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
    return _first_excluded(violations, episodes, confidence, "below", 1.0)


def anytime_lower(
    violations: Numbers, episodes: Numbers, confidence: float
) -> Float[np.ndarray, "..."]:
    """P is at least this, with one-sided confidence for all numbers of episodes together."""
    return _first_excluded(violations, episodes, confidence, "above", 0.0)


def _first_excluded(
    violations: Numbers, episodes: Numbers, confidence: float, side: Side, end: float
) -> Float[np.ndarray, "..."]:
    """Between the observed share and `end`: the first rate that the evidence excludes."""
    k, n = np.broadcast_arrays(np.asarray(violations, float), np.asarray(episodes, float))
    enough = -np.log(1 - confidence)
    kept = np.divide(k, n, out=np.zeros(k.shape), where=n > 0)
    excluded = np.full(k.shape, end)
    for _ in range(HALVINGS):
        middle = (kept + excluded) / 2
        inside = np.clip(middle, 1e-300, 1 - 1e-16)
        refuted = (middle != end) & (log_evidence(k, n, inside, side) >= enough)
        kept, excluded = np.where(refuted, kept, middle), np.where(refuted, middle, excluded)
    return excluded
