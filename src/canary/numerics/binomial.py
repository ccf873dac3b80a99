"""Exact (Clopper-Pearson) bounds on a probability, from k events in n independent trials; n fixed
in advance.

With alpha = 1 - confidence, Clopper and Pearson (1934) bound P by the values at which what was
seen, or less (more), would have had the probability alpha:

    P(Bin(n, upper) <= k) = alpha,   upper = the (1 - alpha) quantile of Beta(k + 1, n - k)
    P(Bin(n, lower) >= k) = alpha,   lower = the alpha quantile of Beta(k, n - k + 1)

Each bound holds with the stated confidence for any P and any n. Both hold together with 1 - 2
alpha. No JAX here: displays, reports and certificates need them on the host. scipy is imported
where it is used, because it takes longer to import than the rest of a live display.
"""

import numpy as np
from jaxtyping import Float

Numbers = int | float | np.number | np.ndarray


def clopper_pearson_upper(
    events: Numbers, trials: Numbers, confidence: float
) -> Float[np.ndarray, "..."]:
    """P is at most this, with the given (one-sided) confidence; 1 if every trial was an event."""
    from scipy.special import betainccinv

    k, others = np.asarray(events, float), np.asarray(trials, float) - events
    return np.where(others > 0, betainccinv(k + 1, np.maximum(others, 1), 1 - confidence), 1.0)


def clopper_pearson_lower(
    events: Numbers, trials: Numbers, confidence: float
) -> Float[np.ndarray, "..."]:
    """P is at least this, with the given (one-sided) confidence; 0 if no trial was an event."""
    from scipy.special import betaincinv

    k, others = np.asarray(events, float), np.asarray(trials, float) - events
    return np.where(k > 0, betaincinv(np.maximum(k, 1), others + 1, 1 - confidence), 0.0)


def clopper_pearson_interval(
    events: Numbers, trials: Numbers, confidence: float = 0.95
) -> tuple[Float[np.ndarray, "..."], Float[np.ndarray, "..."]]:
    """Lower and upper bound that hold together with the given (two-sided) confidence; [0, 1]
    without trials."""
    each = (1 + confidence) / 2
    return clopper_pearson_lower(events, trials, each), clopper_pearson_upper(events, trials, each)
