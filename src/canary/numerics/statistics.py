"""Statistics of samples on the host: exact bounds on a probability, and measured constraints. No
JAX; scipy is slow to import, so functions import it when they need it.

Clopper and Pearson (1934) bound P after k events in n independent trials, with n fixed in advance.
At the upper (lower) bound, a count of at most (at least) k has probability alpha = 1 - confidence:

    P(Bin(n, upper) <= k) = alpha,   upper = the (1 - alpha) quantile of Beta(k + 1, n - k)
    P(Bin(n, lower) >= k) = alpha,   lower = the alpha quantile of Beta(k, n - k + 1)

Each bound holds with the stated confidence for any P and n; both hold together with 1 - 2 alpha.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from canary.constraints import Chance, Constraint, Joint, own_costs, threshold

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
    """Both bounds, with the given two-sided confidence; [0, 1] without trials."""
    each = (1 + confidence) / 2
    return clopper_pearson_lower(events, trials, each), clopper_pearson_upper(events, trials, each)


class Measurement(NamedTuple):
    value: float
    lower: float
    upper: float


def measurement(
    constraint: Constraint, costs: Float[np.ndarray, "episode ..."], confidence: float = 0.95
) -> Measurement | None:
    """The constraint's value on a sample of episodes, with a two-sided interval; None without any.

    Chance   the share of violations, with its Clopper-Pearson interval
    Mean     the mean m +- z s / sqrt(n)
    CVaR     eta + mean (C - eta)+ / eps +- z sd((C - eta)+) / (eps sqrt(n)), eta the sample's VaR
    Joint    the largest of these, and of their ends, in units of what is allowed

    These normal approximations are descriptive; the bounds of `canary certify` are valid.
    """
    costs = np.asarray(costs, float)
    if not len(costs):
        return None
    value = constraint.measure(costs)
    if isinstance(constraint, Joint):
        found = [
            np.array(measurement(part, own_costs(part, costs), confidence)) / part.allowed
            for part in constraint.parts
        ]
        return Measurement(*(float(end) for end in np.max(found, axis=0)))
    if isinstance(constraint, Chance):
        lower, upper = clopper_pearson_interval(round(value * len(costs)), len(costs), confidence)
        return Measurement(value, float(lower), float(upper))
    from scipy.special import ndtri

    share = constraint.share
    tail = costs if share == 1 else np.maximum(costs - threshold(costs, share), 0)
    half = float(ndtri((1 + confidence) / 2) * tail.std() / (share * np.sqrt(len(costs))))
    return Measurement(value, value - half, value + half)
