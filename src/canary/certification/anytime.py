"""Bounds on a probability that hold at every moment at once, so that one may look after any episode
and stop.

Betting against "P >= p" (Ville 1939, Robbins 1970): start with capital 1, and let q be smaller
rates, drawn from Beta(a, b) cut off at p. After k violations in n episodes the capital is the
likelihood of q against that of p, averaged over q:

    M_n(p) = E_q[ q^k (1-q)^(n-k) | q <= p ] / (p^k (1-p)^(n-k))
           = B(k+a, n-k+b) I_p(k+a, n-k+b) / ( B(a, b) I_p(a, b) p^k (1-p)^(n-k) )

If P >= p this is a nonnegative supermartingale, so it ever reaches 1/alpha with probability at most
alpha, however often one looks (Ville's inequality). Hence the set of p with M_n(p) < 1/alpha
contains P at all times together with confidence 1 - alpha, and its upper end bounds P. Rates above
p bound P from below in the same way. With a = 1/2 and b = a (1-p)/p the bets have mean p: bold
where small, so that both verdicts come about as soon as a plan made with knowledge of P would
allow.
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
    """log M_n(rate): how strongly the episodes speak for a P below (above) `rate`, from within (0,
    1)."""
    k, n, p = (np.asarray(value, float) for value in (violations, episodes, rate))
    b = SHAPE * (1 - p) / p
    part = betainc if side == "below" else betaincc
    with np.errstate(divide="ignore"):  # an average that underflows is no evidence: -inf
        after = betaln(k + SHAPE, n - k + b) + np.log(part(k + SHAPE, n - k + b, p))
        before = betaln(SHAPE, b) + np.log(part(SHAPE, b, p))
    return np.asarray(after - before - xlogy(k, p) - xlog1py(n - k, -p))


def anytime_upper(
    violations: Numbers, episodes: Numbers, confidence: float
) -> Float[np.ndarray, "..."]:
    """P is at most this; holds for all numbers of episodes together with the (one-sided)
    confidence."""
    k, n = np.broadcast_arrays(np.asarray(violations, float), np.asarray(episodes, float))
    enough = -np.log(1 - confidence)
    low, high = np.divide(k, n, out=np.zeros(k.shape), where=n > 0), np.ones(k.shape)
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        excluded = (middle < 1) & (
            log_evidence(k, n, np.clip(middle, 1e-300, 1 - 1e-16), "below") >= enough
        )
        low, high = np.where(excluded, low, middle), np.where(excluded, middle, high)
    return high


def anytime_lower(
    violations: Numbers, episodes: Numbers, confidence: float
) -> Float[np.ndarray, "..."]:
    """P is at least this; holds for all numbers of episodes together with the (one-sided)
    confidence."""
    k, n = np.broadcast_arrays(np.asarray(violations, float), np.asarray(episodes, float))
    enough = -np.log(1 - confidence)
    low, high = np.zeros(k.shape), np.divide(k, n, out=np.zeros(k.shape), where=n > 0)
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        inside = np.clip(middle, 1e-300, 1 - 1e-16)
        excluded = (middle > 0) & (log_evidence(k, n, inside, "above") >= enough)
        low, high = np.where(excluded, middle, low), np.where(excluded, high, middle)
    return low
