"""Statistics over seeds beyond the paper's: few seeds, long tails and several environments need
more than a mean.

Interquartile mean and probability of improvement with stratified bootstrap intervals follow Agarwal
et al. (2021), "Deep reinforcement learning at the edge of the statistical precipice". Every
interval here is deterministic: the generator starts from a fixed seed, so that a table that is made
again is the same table.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

Strata = Sequence[Sequence[float]]
"""Scores of the seeds of each environment. Seeds are drawn again within their environment only."""

DRAWS = 2000
SEED = 0


class Interval(NamedTuple):
    """A number with the ends of its interval."""

    value: float
    lower: float
    upper: float


def interquartile_mean(strata: Strata) -> float:
    """Mean of the middle half of all scores: a quarter of them, rounded down, is left out at each
    end."""
    scores = np.sort(np.concatenate([np.asarray(stratum, float) for stratum in strata]))
    cut = len(scores) // 4
    return float(scores[cut : len(scores) - cut].mean())


def bootstrap(
    statistic: Callable[[Strata], float],
    strata: Strata,
    confidence: float = 0.95,
    draws: int = DRAWS,
) -> Interval:
    """The statistic with its percentile interval when the seeds of each stratum are drawn again
    with replacement."""
    rng = np.random.default_rng(SEED)
    columns = [np.asarray(stratum, float) for stratum in strata]
    picks = [rng.integers(0, len(column), (draws, len(column))) for column in columns]
    values = [
        statistic([column[pick[draw]] for column, pick in zip(columns, picks, strict=True)])
        for draw in range(draws)
    ]
    tail = (1 - confidence) / 2
    lower, upper = np.quantile(values, [tail, 1 - tail])
    return Interval(statistic(strata), float(lower), float(upper))


def improvement_probability(ours: Strata, theirs: Strata, confidence: float = 0.95) -> Interval:
    """P(a seed of ours beats a seed of theirs), ties by halves, averaged over environments."""
    if len(ours) != len(theirs):
        raise ValueError("both methods need scores on the same environments")
    half = len(ours)

    def statistic(both: Strata) -> float:
        return float(np.mean([_beats(x, y) for x, y in zip(both[:half], both[half:], strict=True)]))

    return bootstrap(statistic, [*ours, *theirs], confidence)


def _beats(ours: Sequence[float], theirs: Sequence[float]) -> float:
    difference = np.subtract.outer(np.asarray(ours, float), np.asarray(theirs, float))
    return float(np.mean((difference > 0) + 0.5 * (difference == 0)))


def margin_per_jitter(
    epsilon: float | None, violation: float | None, jitter: float | None
) -> float | None:
    """(epsilon - P) / jitter: by how many of its own wanderings a method stays below its threshold;
    the paper's margin.

    None where one of them is not known, and where the jitter is 0: blocks of training then differ
    by no more than counting explains, and nothing is known of how much less.
    """
    if epsilon is None or violation is None or not jitter:
        return None
    return (epsilon - violation) / jitter


def running_rate(
    violated: Bool[np.ndarray, "episode"], iteration: Int[np.ndarray, "episode"], width: int
) -> tuple[Int[np.ndarray, "update"], Float[np.ndarray, "update"]]:
    """Violation rate of the last `width` episodes at the end of every update that ended one;
    episodes in order of time.

    An update is left out while fewer than `width` episodes have ended.
    """
    total = np.concatenate([[0], np.cumsum(violated)])
    # Episodes up to each update's end.
    last = np.flatnonzero(np.diff(iteration, append=iteration[-1:] + 1)) + 1
    last = last[last >= width]
    return iteration[last - 1], (total[last] - total[last - width]) / width


def collapse_time(
    steps: Float[np.ndarray, "time"],
    rate: Float[np.ndarray, "time"],
    high: float = 0.3,
    low: float = 0.1,
) -> float | None:
    """Steps from the last time at `high` or above to the first time at `low` or below; None if it
    never falls so far.

    The paper's collapse of the violation probability, whose length does not depend on epsilon.
    """
    below = np.flatnonzero(rate <= low)
    if not below.size:
        return None
    above = np.flatnonzero(rate[: below[0]] >= high)
    return float(steps[below[0]] - steps[above[-1]]) if above.size else None
