"""Statistics of samples on the host: exact bounds on a probability, measured constraints, power
laws and Gaussian tails. No JAX, and scipy only where it is used: importing it takes long.

Clopper and Pearson (1934) bound P after k events in n independent trials, n fixed in advance. With
alpha = 1 - confidence, the bounds are the P at which a count so small (so large) has probability
alpha:

    P(Bin(n, upper) <= k) = alpha,   upper = the (1 - alpha) quantile of Beta(k + 1, n - k)
    P(Bin(n, lower) >= k) = alpha,   lower = the alpha quantile of Beta(k, n - k + 1)

Each holds with the stated confidence for any P and n, both together with 1 - 2 alpha.
"""

import math
from dataclasses import dataclass
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

    The normal approximations describe. `canary certify` has bounds that hold.
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


def fitted_exponent(
    thresholds: np.ndarray, relative_variances: np.ndarray, confidence: float = 0.95
) -> tuple[float, float]:
    """Slope of log kappa^2 over log epsilon by least squares, and the half-width of its Student
    interval; NaN with fewer than three thresholds. -1 is the rate 1 / epsilon, 0 is stable."""
    from scipy.special import stdtrit

    with np.errstate(divide="ignore", invalid="ignore"):
        x, y = np.log(thresholds), np.log(relative_variances)
    known = np.isfinite(x) & np.isfinite(y)
    x, y = x[known], y[known]
    if len(set(x)) < 3:
        return np.nan, np.nan
    centred = x - x.mean()
    slope = float(centred @ y / (centred @ centred))
    residual = y - y.mean() - slope * centred
    error = np.sqrt(residual @ residual / (len(x) - 2) / (centred @ centred))
    return slope, float(stdtrit(len(x) - 2, (1 + confidence) / 2) * error)


@dataclass(frozen=True)
class GaussianTail:
    """What a Gaussian with the moments of the cost predicts, beside the truth (rem:gaussian)."""

    deviations: float
    """z = (l - mu) / sigma; infinite if the cost does not vary."""
    log10_predicted: float
    """log10 of P(N(0, 1) > z), which may itself be too small for a float."""
    realised: float

    @property
    def log10_understatement(self) -> float:
        """By how many orders of magnitude the Gaussian understates the violations; -inf without
        any."""
        return -math.inf if self.realised == 0 else math.log10(self.realised) - self.log10_predicted


def gaussian_tail(mean: float, deviation: float, limit: float, violation: float) -> GaussianTail:
    """The Gaussian prediction for a policy whose violation probability is known."""
    from scipy.special import log_ndtr

    if deviation > 0:
        z = (limit - mean) / deviation
    else:
        z = math.inf if limit >= mean else -math.inf
    return GaussianTail(z, float(log_ndtr(-z)) / math.log(10), violation)
