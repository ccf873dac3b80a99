"""From the episodes of one policy to its verdict: its constraint is SATISFIED, VIOLATED or
UNDECIDED.

SATISFIED: the upper bound on what the constraint limits is within what is allowed. VIOLATED: the
lower bound is above it. For a given law of the costs only one of the two can be wrong, so with each
bound at confidence 1 - alpha a wrong verdict has probability at most alpha.

Chance   Clopper-Pearson for a fixed number of episodes, a mixture martingale otherwise (`anytime`)
Mean     betting (`anytime`), for either
CVaR     the integrated survival function (`tails`); look j of a test that may stop early spends
         alpha / (j (j + 1)), which add up to alpha over all looks

Several statements (seeds, changed environments) are corrected by Bonferroni: alpha is divided by
their number. Then all hold together with the stated confidence, dependent or not, so one may pick
the best-looking seed afterwards and keep its bound. Holm's method rejects a little more
but gives no simple bounds.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import groupby
from typing import Literal

import numpy as np
from jaxtyping import Float

from canary.certification import anytime, tails
from canary.certification.plan import Plan, largest_cost, planned_episodes
from canary.constraints import Chance, Mean, One
from canary.errors import CanaryError
from canary.numerics.costs import violates
from canary.numerics.statistics import clopper_pearson_lower, clopper_pearson_upper

Method = Literal["fixed", "anytime"]
Verdict = Literal["SATISFIED", "VIOLATED", "UNDECIDED"]
Costs = Float[np.ndarray, "episode"]

BOUNDS = {
    "fixed": (clopper_pearson_lower, clopper_pearson_upper),
    "anytime": (anytime.anytime_lower, anytime.anytime_upper),
}
"""Lower and upper bound on P after (violations, episodes) at a confidence."""


@dataclass(frozen=True, kw_only=True)
class PlayedEpisodes:
    """What the episodes of one frozen policy showed. Every bound is a function of this, the plan
    and the constraint."""

    policy_sha256: str
    method: Method
    """anytime: the number of episodes may depend on their costs; fixed: it was decided before."""
    looks: int
    """How often the test looked at its data: the batches played."""
    interrupted: bool
    costs: str
    """The cost of every episode in the order played, equal ones together: "812x0 1 14x0 3.5"."""
    return_mean: float | None
    length_mean: float | None


@dataclass(frozen=True, kw_only=True)
class Assessment:
    """The numbers of one policy. Each bound holds with the corrected confidence."""

    episodes: int
    violations: int
    rate: float | None
    lower: float
    """On what the constraint limits: P(C > limit), the mean cost, or CVaR."""
    upper: float
    value_at_risk_lower: float | None
    value_at_risk_upper: float | None
    conditional_value_at_risk_upper: float | None
    """None without a largest possible cost: the largest cost seen is not one."""
    mean: float | None
    mean_upper: float | None
    deviation: float | None
    episodes_needed: int | None
    """Fixed number of episodes that would decide with probability 0.9 if the observed rate were the
    true one."""
    verdict: Verdict
    sentence: str


def encode_costs(costs: Costs) -> str:
    """Runs of equal costs as text; every number comes back exactly."""
    texts = (repr(cost).removesuffix(".0") for cost in costs.tolist())
    runs = ((text, len(list(group))) for text, group in groupby(texts))
    return " ".join(f"{count}x{text}" if count > 1 else text for text, count in runs)


def decode_costs(text: str) -> Costs:
    """The cost of every episode."""
    runs = [word.rpartition("x") for word in text.split()]
    counts = np.array([int(count or 1) for count, _, _ in runs], int)
    return np.repeat(np.array([float(cost) for _, _, cost in runs]), counts)


def assess(played: PlayedEpisodes, plan: Plan, constraint: One) -> Assessment:
    """All bounds, the verdict, and its sentence. A mean constraint names no share of worst
    episodes, so it has no bounds on VaR and CVaR."""
    costs, look = decode_costs(played.costs), (played.method, played.looks)
    episodes, share, confidence = len(costs), constraint.share, plan.corrected_confidence
    bounds = constraint_bounds(constraint, costs, look, plan)
    violations = int(violates(costs, constraint.limit).sum())
    rate = violations / episodes if episodes else None
    at_risk, tail, mean, needed = [None, None], None, None, None
    if isinstance(constraint, Mean):
        mean = bounds[1]
    else:
        at_risk = [
            tails.value_at_risk_bound(costs, share, confidence, bound)
            for bound in BOUNDS[played.method]
        ]
        largest, level = largest_cost(plan, constraint), _spent(look, confidence)
        if largest is not None and episodes:
            tail, mean = (
                tails.tail_mean_upper(costs, part, largest, level) for part in (share, 1.0)
            )
    if isinstance(constraint, Chance) and rate is not None:
        needed = planned_episodes(constraint.epsilon, rate, confidence=confidence)
    verdict = decide(*bounds, constraint.allowed)
    return Assessment(
        episodes=episodes,
        violations=violations,
        rate=rate,
        lower=bounds[0],
        upper=bounds[1],
        value_at_risk_lower=at_risk[0],
        value_at_risk_upper=at_risk[1],
        conditional_value_at_risk_upper=tail,
        mean=float(costs.mean()) if episodes else None,
        mean_upper=mean,
        deviation=float(costs.std()) if episodes else None,
        episodes_needed=needed,
        verdict=verdict,
        sentence=_sentence(verdict, costs, bounds, needed, plan, constraint),
    )


def decide(lower: float, upper: float, allowed: float) -> Verdict:
    if upper <= allowed:
        return "SATISFIED"
    return "VIOLATED" if lower > allowed else "UNDECIDED"


def may_stop(costs: Costs, looks: int, plan: Plan, constraint: One) -> bool:
    """Whether an anytime test has its verdict after so many looks."""
    if isinstance(constraint, Mean):  # without the bounds, which take a bisection
        bets = costs, constraint.limit, _largest(costs, plan, constraint)
        return anytime.excludes_mean(*bets, plan.corrected_confidence, constraint.allowed)
    bounds = constraint_bounds(constraint, costs, ("anytime", looks), plan)
    return decide(*bounds, constraint.allowed) != "UNDECIDED"


def constraint_bounds(
    constraint: One, costs: Costs, look: tuple[Method, int], plan: Plan
) -> tuple[float, float]:
    """Lower and upper bound on what the constraint limits. A look is a method and its index, from
    1."""
    largest, confidence = _largest(costs, plan, constraint), plan.corrected_confidence
    if isinstance(constraint, Chance):
        if not len(costs):
            return 0.0, 1.0
        seen = int(violates(costs, constraint.limit).sum()), len(costs), confidence
        lower, upper = (float(bound(*seen)) for bound in BOUNDS[look[0]])
    elif isinstance(constraint, Mean):
        lower, upper = anytime.mean_bounds(costs, constraint.limit, largest, confidence)
    else:
        level, share = _spent(look, confidence), constraint.share
        lower = tails.tail_mean_lower(costs, share, level)
        upper = tails.tail_mean_upper(costs, share, largest, level)
    return lower, upper


def _spent(look: tuple[Method, int], confidence: float) -> float:
    """The confidence at this look of a bound that is not by itself valid at all times."""
    method, number = look
    if method == "fixed" or number == 0:
        return confidence
    return 1 - (1 - confidence) / (number * (number + 1))


def _largest(costs: Costs, plan: Plan, constraint: One) -> float:
    """The largest possible cost; infinite if a chance constraint has none. Bounds on means assume
    that costs lie between 0 and it."""
    bound = largest_cost(plan, constraint)
    if bound is not None and len(costs) and costs.max() > bound * (1 + 1e-6):
        raise CanaryError(
            f"An episode cost {costs.max():g}, but the largest possible cost was given as "
            f"{bound:g}; correct it or leave it out."
        )
    if not isinstance(constraint, Chance) and len(costs) and costs.min() < 0:
        raise CanaryError(
            f"An episode cost {costs.min():g}: {constraint.text} can be certified only if no cost "
            "is negative."
        )
    return math.inf if bound is None else bound


def percent(value: float) -> str:
    return f"{100 * value:.4g}%"


def statement_start(plan: Plan) -> str:
    together = f" in all {plan.statements} statements together" if plan.statements > 1 else ""
    return f"With {percent(plan.confidence)} confidence{together}"


def _sentence(
    verdict: Verdict,
    costs: Costs,
    bounds: tuple[float, float],
    needed: int | None,
    plan: Plan,
    constraint: One,
) -> str:
    """What the verdict says. Numbers are rounded so that the sentence never claims too much."""
    count = len(costs)
    if count == 0:
        return "No episode of this policy was played, so nothing is known about it."
    lower, upper = _round(bounds[0], math.floor), _round(bounds[1], math.ceil)
    if isinstance(constraint, Chance):
        violations = int(violates(costs, constraint.limit).sum())
        cost = "cost more than" if constraint.number is None else f"have {constraint.cost} above"
        start, more = f"{statement_start(plan)},", f" of episodes {cost} {constraint.limit:g}"
        seen = f"allowed are {percent(constraint.epsilon)}, and {violations:,} of {count:,} did"
        least, most, (low, high) = percent(lower), percent(upper), map(percent, bounds)
    else:
        is_mean = isinstance(constraint, Mean)
        which = "an episode" if is_mean else f"the worst {percent(constraint.share)} of episodes"
        start, more = f"{statement_start(plan)}, the mean {constraint.cost} of {which} is", ""
        value = constraint.measure(costs)
        seen = f"allowed is {constraint.allowed:g}, and {count:,} episodes had {value:.4g}"
        least, most = low, high = f"{lower:.6g}", f"{upper:.6g}"
    if verdict == "SATISFIED":
        return f"{start} at most {most}{more} ({seen})."
    if verdict == "VIOLATED":
        return f"{start} more than {least}{more} ({seen})."
    advice = f" About {needed:,} would decide if the rate seen is the true one." if needed else ""
    return f"{start} between {low} and {high}{more} ({seen}): these episodes cannot tell.{advice}"


def _round(value: float, rounding: Callable[[float], int]) -> float:
    """To four significant digits, up or down."""
    scale = 10 ** (3 - math.floor(math.log10(value))) if value > 0 else 1
    return rounding(value * scale) / scale
