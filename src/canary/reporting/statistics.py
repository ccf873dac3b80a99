"""The paper's measures of safety and performance (tab:safety, app:jitter), from the episodes of a
seed.

    converged violation probability   P = share of episodes with C > limit
    violation-probability jitter      sqrt(max(0, Var_b[p_b] - mean_b[P (1 - P) / n_b]))

over the second half of training; the jitter splits it into 12 equal blocks b of updates, with n_b
episodes and violation rate p_b each. What it subtracts is the variance that counting alone would
give the blocks of a frozen policy. Reliability (% safe) is the share of seeds with P <= epsilon. A
measure without data is None, never 0.
"""

import math
from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.special import stdtrit

__all__ = [
    "is_violation",
    "mean_over_seeds",
    "paired_difference",
    "safe_fraction",
    "standard_error",
    "student_interval",
    "violation_jitter",
]

BLOCKS = 12


def is_violation(cost: Float[np.ndarray, "episode"], limit: float) -> Bool[np.ndarray, "episode"]:
    """Strictly above the limit; a cost that is not a number proves nothing and counts as a
    violation."""
    return ~(cost <= limit)


def violation_jitter(
    violated: Bool[np.ndarray, "episode"],
    iteration: Int[np.ndarray, "episode"],
    first: int,
    last: int,
    blocks: int = BLOCKS,
) -> float | None:
    """How much the violation probability wanders over iterations [first, last), in units of
    probability.

    Blocks without episodes are left out, and with fewer than two there is no jitter to speak of.
    The variance over blocks is the unbiased one (n - 1), for which the floor is what a constant
    probability gives on average.
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


def mean_over_seeds(values: Sequence[float | None]) -> float | None:
    """The mean of the seeds that have a value."""
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else None


def standard_error(values: Sequence[float | None]) -> float | None:
    """The standard error of that mean; None for fewer than two seeds, which show no spread."""
    known = [value for value in values if value is not None]
    return float(np.std(known, ddof=1) / math.sqrt(len(known))) if len(known) > 1 else None


def safe_fraction(rates: Sequence[float | None], epsilon: float) -> float | None:
    """Share of seeds whose violation probability is at most epsilon, among those that have one."""
    return mean_over_seeds([None if rate is None else float(rate <= epsilon) for rate in rates])


def paired_difference(
    values: Sequence[float | None], reference: Sequence[float | None], confidence: float = 0.95
) -> tuple[float, float] | None:
    """Mean of `values` - `reference` seed by seed, and the half-width of its Student interval; None
    for fewer than two."""
    pairs = [
        (a, b) for a, b in zip(values, reference, strict=True) if a is not None and b is not None
    ]
    if len(pairs) < 2:
        return None
    found = student_interval([a - b for a, b in pairs], confidence)
    return None if found is None or found[1] is None else (found[0], found[1])


def student_interval(
    values: Sequence[float], confidence: float = 0.95
) -> tuple[float, float | None] | None:
    """The mean and the half-width of its Student interval, which a single value has not; None of
    nothing."""
    if not len(values):
        return None
    numbers, count = np.asarray(values, float), len(values)
    if count == 1:
        return float(numbers[0]), None
    quantile = float(stdtrit(count - 1, (1 + confidence) / 2))
    return float(numbers.mean()), quantile * float(numbers.std(ddof=1)) / math.sqrt(count)
