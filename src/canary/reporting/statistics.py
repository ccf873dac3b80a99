"""Statistics over episodes and seeds. A measure without data is None.

The paper's measures (tab:safety, app:jitter), over the second half of training:

    converged violation probability   P = share of episodes with C > limit
    violation-probability jitter      sqrt(max(0, Var_b[p_b] - mean_b[P (1 - P) / n_b]))

The jitter splits the updates into 12 equal blocks b with n_b episodes and violation rate p_b, and
subtracts the binomial variance of a constant probability. Reliability (% safe) is the share of seeds
with P <= epsilon.
"""

import math
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import polars as pl
from jaxtyping import Bool, Float, Int
from scipy.special import stdtrit

from canary.constraints import One

BLOCKS = 12
HIGH, LOW = 0.3, 0.1  # the paper's collapse of the violation probability


def is_violation(
    cost: Float[np.ndarray, "episode ..."], limit: float | Float[np.ndarray, "cost"]
) -> Bool[np.ndarray, "episode"]:
    """Whether a cost, or any of several, is strictly above its limit; NaN counts as a violation."""
    within = np.asarray(cost <= limit)
    return ~np.all(within, axis=tuple(range(1, within.ndim)))


def seen_by(constraint: One, episodes: pl.DataFrame) -> pl.DataFrame:
    """The episodes with the cost that the constraint limits."""
    if constraint.number is None:
        return episodes
    return episodes.with_columns(pl.col("cost").arr.get(constraint.number - 1))


def violation_jitter(
    violated: Bool[np.ndarray, "episode"],
    iteration: Int[np.ndarray, "episode"],
    first: int,
    last: int,
    blocks: int = BLOCKS,
) -> float | None:
    """Jitter of the violation probability over iterations [first, last).

    Blocks without episodes are left out; fewer than two give None. The variance over blocks is
    unbiased: if the probability is constant, its mean is the subtracted binomial variance.
    """
    if last <= first:
        return None
    block = (iteration - first) * blocks // (last - first)
    counts = np.bincount(block, minlength=blocks)
    violations = np.bincount(block, weights=violated, minlength=blocks)
    filled = counts > 0
    if filled.sum() < 2:
        return None
    rates = violations[filled] / counts[filled]
    pooled = violated.mean()
    floor = np.mean(pooled * (1 - pooled) / counts[filled])
    return math.sqrt(max(0.0, float(rates.var(ddof=1) - floor)))


class Estimate(NamedTuple):
    """The mean over the seeds that have a value; with two or more, also its standard error and the
    half-width of its 95% Student interval."""

    mean: float | None
    error: float | None = None
    half: float | None = None


def over_seeds(values: Iterable[float | None]) -> Estimate:
    known = [value for value in values if value is not None]
    mean = float(np.mean(known)) if known else None
    if len(known) < 2:
        return Estimate(mean)
    error = float(np.std(known, ddof=1) / math.sqrt(len(known)))
    return Estimate(mean, error, float(stdtrit(len(known) - 1, 0.975)) * error)


def safe_fraction(values: Iterable[float | None], allowed: float) -> float | None:
    """Share of seeds whose value is at most `allowed`, among the seeds with a value."""
    return over_seeds(None if value is None else value <= allowed for value in values).mean


def running_rate(
    violated: Bool[np.ndarray, "episode"], iteration: Int[np.ndarray, "episode"], width: int
) -> tuple[Int[np.ndarray, "update"], Float[np.ndarray, "update"]]:
    """Violation rate of the last `width` episodes, after every update in which an episode ended,
    once there are `width` episodes. Episodes are in order of time."""
    total = np.concatenate([[0], np.cumsum(violated)])
    last = np.flatnonzero(np.diff(iteration, append=iteration[-1:] + 1)) + 1  # per update
    last = last[last >= width]
    return iteration[last - 1], (total[last] - total[last - width]) / width


def collapse_time(
    steps: Float[np.ndarray, "time"], rate: Float[np.ndarray, "time"]
) -> float | None:
    """Steps from the last rate of at least HIGH to the first of at most LOW; None if the rate does
    not fall to LOW."""
    below = np.flatnonzero(rate <= LOW)
    above = np.flatnonzero(rate[: below[0]] >= HIGH) if below.size else below
    return float(steps[below[0]] - steps[above[-1]]) if above.size else None
