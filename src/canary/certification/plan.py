"""The plan of a certification, which is decided before the first episode and part of the
certificate; and the exact number of episodes that a verdict needs."""

import math
from bisect import bisect_left
from dataclasses import dataclass, replace
from functools import lru_cache

from scipy.special import betainc, betaincc

from canary.constraints import Chance, Constraint, One, parts_of
from canary.errors import CanaryError
from canary.values import Count, convert_fields

ASSUMED_RATE = 0.5  # the violation probability assumed in a plan, as a share of epsilon
POWER = 0.9  # the probability that a policy with this rate gets its verdict
ANYTIME_FACTOR = 2  # an anytime test needs at worst about twice the episodes
FEWEST_FOR_MEANS, MOST_FOR_MEANS = 1000, 1_000_000
MARGIN_FOR_MEANS = 8  # times the episodes that exclude a limit filled by unseen rare costs
LARGEST_PLAN = 1_000_000  # episodes; if more are needed, P and epsilon are practically equal
ROUNDING = 64  # values of k around the bisection's result to test one by one


@dataclass(frozen=True, kw_only=True)
class Plan:
    confidence: float = 0.95
    """A wrong verdict (SATISFIED or VIOLATED) has probability at most 1 - confidence."""
    statements: Count = 1
    """Number of verdicts that hold together. Each is given at confidence
    1 - (1 - confidence) / statements (Bonferroni)."""
    episodes: Count | None = None
    """Number of episodes per policy, or the largest number with early stopping; None plans it."""
    early_stop: bool = True
    """Stop as soon as the verdict is clear, with bounds that are valid at all times."""
    batch: Count = 256
    """Episodes played in parallel; the test looks after each batch."""
    cost_bound: float | tuple[float | None, ...] | None = None
    """Largest possible cost of an episode (largest step cost times horizon), or one for each of
    several costs; None: no bounds on means."""
    deterministic: bool = False
    """Take the most likely action instead of sampling. This is another policy with another
    certificate."""

    def __post_init__(self):
        convert_fields(self)
        check_confidence(self.confidence)

    @property
    def corrected_confidence(self) -> float:
        """The confidence of each statement, so that all hold together with `confidence`."""
        return 1 - (1 - self.confidence) / self.statements


def check_confidence(value: float) -> None:
    if not 0 < value < 1:
        raise CanaryError(
            f"The confidence must lie strictly between 0 and 1, such as 0.95, not {value}."
        )


def largest_cost(plan: Plan, constraint: One) -> float | None:
    """The largest possible episode cost under a constraint. Without it no number of episodes bounds
    a mean."""
    bound = plan.cost_bound
    if isinstance(bound, tuple):
        bound = bound[(constraint.number or 1) - 1]
    if bound is None and not isinstance(constraint, Chance):
        raise CanaryError(
            f"Certifying {constraint.text} needs the largest cost of a step: without it an unseen "
            "episode could cost anything. State it as `largest_step_cost` of the environment, in "
            "canary.certify(run, largest_step_cost=...) or with canary certify --largest-step-cost."
        )
    return bound


def complete(plan: Plan, constraint: Constraint) -> Plan:
    """The plan with a number of episodes; if it was None, enough for every constraint."""
    largest = [largest_cost(plan, part) for part in parts_of(constraint)]
    if plan.episodes is not None:
        return plan
    pairs = zip(parts_of(constraint), largest, strict=True)
    return replace(plan, episodes=max(_enough_episodes(plan, *pair) for pair in pairs))


def _enough_episodes(plan: Plan, constraint: One, largest: float | None) -> int:
    confidence = plan.corrected_confidence
    if not isinstance(constraint, Chance):
        assert largest is not None
        rarest = largest * -math.log(1 - confidence) / (constraint.share * constraint.limit)
        wanted = max(FEWEST_FOR_MEANS, math.ceil(MARGIN_FOR_MEANS * rarest))
        return min(wanted, MOST_FOR_MEANS)
    rate = ASSUMED_RATE * constraint.epsilon
    episodes = planned_episodes(constraint.epsilon, rate, confidence=confidence)
    if episodes is None:
        raise CanaryError(
            f"Certifying P <= {constraint.epsilon:g} takes too many episodes to plan; give "
            "their number yourself or a larger epsilon."
        )
    return episodes * ANYTIME_FACTOR if plan.early_stop else episodes


@lru_cache(maxsize=1024)
def planned_episodes(epsilon: float, rate: float, *, confidence: float = 0.95) -> int | None:
    """Smallest fixed n at which a policy with P = `rate` gets its verdict with probability 0.9;
    None beyond 10^6.

    If rate < epsilon the verdict is SATISFIED for at most k violations, and k needs
    P(Bin(n, epsilon) <= k) <= alpha and P(Bin(n, rate) > k) <= 0.1. If rate > epsilon the verdict is
    VIOLATED for more than k, with the two probabilities exchanged. The smallest k that meets both
    conditions gives n.
    """
    few, many = (rate, 1 - POWER), (epsilon, 1 - confidence)
    if rate > epsilon:
        few, many = many, few

    def smallest(k: int) -> int:
        """The smallest n with P(Bin(n, rate) <= k) <= tail, for the larger of the two rates."""
        rate, tail = many
        tries = range(k + 1, max(LARGEST_PLAN, k) + 1)
        place = bisect_left(tries, x=True, key=lambda n: betaincc(k + 1, n - k, rate) <= tail)
        return k + 1 + place

    def fits(k: int) -> bool:
        n = smallest(k)
        return n > LARGEST_PLAN or betainc(k + 1, n - k, few[0]) <= few[1]

    # If k fits, larger ones fit too, except for the rounding of n
    last = bisect_left(range(LARGEST_PLAN), x=True, key=fits)
    first = next(k for k in range(max(0, last - ROUNDING), last + ROUNDING) if fits(k))
    return found if (found := smallest(first)) <= LARGEST_PLAN else None
