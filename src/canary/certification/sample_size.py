"""How many episodes to plan for a verdict by exact bounds (`numerics/binomial.py`), with their
number fixed in advance."""

from functools import lru_cache

import numpy as np
from jaxtyping import Bool, Int
from scipy.special import betainc, betaincc

from canary.errors import CanaryError

# Episodes; whoever needs more is deciding between P and epsilon that are practically equal
LARGEST_PLAN = 1_000_000
ROUNDING = 64


def clean_episodes(epsilon: float, confidence: float) -> int:
    """Episodes without any violation that show P <= epsilon: the smallest n with (1 - epsilon)^n <=
    alpha."""
    _check(epsilon, confidence)
    return int(_episodes_for(np.zeros(1, int), epsilon, 1 - confidence)[0])


@lru_cache(maxsize=1024)
def planned_episodes(
    epsilon: float, rate: float, *, confidence: float = 0.95, power: float = 0.9
) -> int | None:
    """Smallest n at which a policy with P = `rate` gets its verdict with probability >= `power`;
    None beyond 10^6.

    For rate < epsilon the verdict is upper bound <= epsilon, for rate > epsilon it is lower bound >
    epsilon. With at most k violations allowed, the first needs P(Bin(n, epsilon) <= k) <= alpha and
    P(Bin(n, rate) > k) <= 1 - power; the second the same with the two probabilities exchanged. The
    first k that can do both gives n.
    """
    _check(epsilon, confidence)
    if not (0 <= rate <= 1 and 0 < power < 1):
        raise CanaryError(
            f"A plan needs a rate within [0, 1] and a power within (0, 1), not {rate} and {power}."
        )
    few, many = (rate, 1 - power), (epsilon, 1 - confidence)
    if rate > epsilon:
        few, many = many, few

    def plan(
        k: Int[np.ndarray, "count"],
    ) -> tuple[Int[np.ndarray, "count"], Bool[np.ndarray, "count"]]:
        n = _episodes_for(k, *many)
        return n, (n <= LARGEST_PLAN) & (betainc(k + 1, n - k, few[0]) <= few[1])

    low, high = 0, LARGEST_PLAN
    while (
        low < high
    ):  # larger k do what smaller ones can, but for the rounding of n to whole episodes:
        middle = (low + high) // 2
        n, fits = plan(np.array([middle]))
        low, high = (low, middle) if fits[0] or n[0] > LARGEST_PLAN else (middle + 1, high)
    k = np.arange(max(0, low - ROUNDING), low + ROUNDING)  # so the last few are compared one by one
    n, fits = plan(k)
    return int(n[fits.argmax()]) if fits.any() else None


def _episodes_for(
    k: Int[np.ndarray, "count"], rate: float, tail: float
) -> Int[np.ndarray, "count"]:
    """For each k the smallest n with P(Bin(n, rate) <= k) <= tail, or more than LARGEST_PLAN."""
    low, high = k, np.maximum(LARGEST_PLAN, k) + 1  # not enough; enough, or not looked for
    while (high - low > 1).any():
        middle = np.maximum((low + high) // 2, k + 1)
        enough = betaincc(k + 1, middle - k, rate) <= tail
        low, high = np.where(enough, low, middle), np.where(enough, middle, high)
    return high


def _check(epsilon: float, confidence: float) -> None:
    if not 0 < epsilon < 1:
        raise CanaryError(f"Epsilon must lie strictly between 0 and 1, not {epsilon!r}.")
    if not 0 < confidence < 1:
        raise CanaryError(
            "The confidence must lie strictly between 0 and 1, for example 0.95, not "
            f"{confidence!r}."
        )
