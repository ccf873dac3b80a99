"""From the episodes of one policy to its verdict: P(C > limit) <= epsilon is SATISFIED, VIOLATED or
UNDECIDED.

SATISFIED: the upper bound on P is <= epsilon. VIOLATED: the lower bound is > epsilon. Only one of the two can
be wrong for a given P, so with each bound at confidence 1 - alpha a wrong verdict has probability <= alpha.

Several statements (seeds, changed environments) are corrected by Bonferroni: alpha is divided by their
number. Then all of them are right together with the stated confidence, whatever their dependence, so one may
pick the best-looking seed afterwards and keep its bound. Holm's method rejects a little more but yields no
simple bounds, hence Bonferroni.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from canary.certification import anytime, tails
from canary.certification.plan import POWER, Plan
from canary.certification.sample_size import planned_episodes
from canary.errors import CanaryError
from canary.numerics.binomial import clopper_pearson_lower, clopper_pearson_upper
from canary.numerics.violations import violates
from canary.types import Chance

Verdict = Literal["SATISFIED", "VIOLATED", "UNDECIDED"]
Method = Literal["fixed", "anytime"]

UPPER = {"fixed": clopper_pearson_upper, "anytime": anytime.anytime_upper}
LOWER = {"fixed": clopper_pearson_lower, "anytime": anytime.anytime_lower}


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """What the episodes of one frozen policy showed. Every bound is a function of this, the plan and the
    constraint.
    """

    policy_sha256: str
    method: Method
    """anytime: the number of episodes may have depended on what they showed; fixed: it was decided before."""
    looks: int
    """How often the test looked at its data: batches played."""
    interrupted: bool
    costs: tuple[tuple[float, int], ...]
    """The distinct episode costs in ascending order, each with the number of episodes that had it."""
    order: str
    """Which of these costs each episode had, in the order of their numbers (`order.encode`)."""
    return_mean: float | None
    length_mean: float | None


@dataclass(frozen=True, kw_only=True)
class Assessment:
    """One policy's numbers. Each bound holds with the corrected confidence; those named `alone`, with the
    plain one.
    """

    episodes: int
    violations: int
    rate: float | None
    lower: float
    upper: float
    alone_lower: float
    """For a policy that was chosen before anything was seen of it: no correction."""
    alone_upper: float
    alone_verdict: Verdict
    value_at_risk_lower: float | None
    value_at_risk_upper: float | None
    conditional_value_at_risk_upper: float | None
    """None without a largest possible cost: the largest cost seen is not one."""
    mean: float | None
    mean_upper: float | None
    deviation: float | None
    cantelli_plug_in: float | None
    """Cantelli's bound with the sample's moments in place of the true ones: a description, not a certificate.
    """
    episodes_needed: int | None
    """Fixed number of episodes that would decide, with probability 0.9, were the observed rate the true one.
    """
    verdict: Verdict
    sentence: str


def assess(evidence: Evidence, plan: Plan, constraint: Chance) -> Assessment:
    """All bounds, the verdict, and its sentence."""
    costs = np.repeat(*_columns(evidence.costs))
    episodes, violations = len(costs), int(violates(costs, constraint.limit).sum())
    if plan.cost_bound is not None and episodes and costs.max() > plan.cost_bound * (1 + 1e-6):
        raise CanaryError(
            f"An episode cost {costs.max():g}, but the largest possible cost was said to be "
            f"{plan.cost_bound:g}; correct that or leave it out."
        )
    lower, upper = probability_bounds(violations, episodes, plan.corrected_confidence, evidence.method)
    alone_lower, alone_upper = probability_bounds(violations, episodes, plan.confidence, evidence.method)
    rate = violations / episodes if episodes else None
    needed = None
    if rate is not None:
        needed = planned_episodes(constraint.epsilon, rate, confidence=plan.corrected_confidence, power=POWER)
    verdict = decide(lower, upper, constraint.epsilon)
    return Assessment(
        episodes=episodes,
        violations=violations,
        rate=rate,
        lower=lower,
        upper=upper,
        alone_lower=alone_lower,
        alone_upper=alone_upper,
        alone_verdict=decide(alone_lower, alone_upper, constraint.epsilon),
        **_tail_bounds(costs, evidence, plan, constraint),
        mean=float(costs.mean()) if episodes else None,
        deviation=float(costs.std()) if episodes else None,
        cantelli_plug_in=tails.cantelli_plug_in(costs, constraint.limit) if episodes else None,
        episodes_needed=needed,
        verdict=verdict,
        sentence=_sentence(verdict, (violations, episodes), (lower, upper), needed, plan, constraint),
    )


def decide(lower: float, upper: float, epsilon: float) -> Verdict:
    if upper <= epsilon:
        return "SATISFIED"
    return "VIOLATED" if lower > epsilon else "UNDECIDED"


def overall(assessments: list[Assessment], seeds: list[int], plan: Plan) -> tuple[Verdict, str]:
    """The verdict on a set of policies: SATISFIED if all are, VIOLATED if any is, and which ones are what."""
    if not assessments:
        return "UNDECIDED", "No policy was played in the environment it was trained in, so nothing is known."
    if len(assessments) == 1:
        return assessments[0].verdict, assessments[0].sentence
    groups = {
        verdict: [str(s) for s, one in zip(seeds, assessments, strict=True) if one.verdict == verdict]
        for verdict in ("SATISFIED", "VIOLATED", "UNDECIDED")
    }
    verdict: Verdict = (
        "VIOLATED" if groups["VIOLATED"] else "UNDECIDED" if groups["UNDECIDED"] else "SATISFIED"
    )
    start = f"With {percent(plan.confidence)} confidence in all {plan.statements} statements together"
    where = " in the environment they were trained in" if plan.statements > len(seeds) else ""
    phrases = {"SATISFIED": "keep the limit", "VIOLATED": "break the limit", "UNDECIDED": "remain undecided"}
    if len(groups[verdict]) == len(seeds):
        return verdict, f"{start}, the policies of all {len(seeds)} seeds {phrases[verdict]}{where}."
    parts = [f"{phrases[name]}: {', '.join(group)}" for name, group in groups.items() if group]
    return verdict, f"{start}, these seeds {'; these '.join(parts)}{where}."


def percent(value: float) -> str:
    return f"{100 * value:.4g}%"


def _columns(costs: tuple[tuple[float, int], ...]) -> tuple[np.ndarray, np.ndarray]:
    values, counts = zip(*costs, strict=True) if costs else ((), ())
    return np.array(values, float), np.array(counts, int)


def probability_bounds(
    violations: int, episodes: int, confidence: float, method: Method
) -> tuple[float, float]:
    """Lower and upper bound on P, each with the given confidence."""
    if episodes == 0:
        return 0.0, 1.0
    return (
        float(LOWER[method](violations, episodes, confidence)),
        float(UPPER[method](violations, episodes, confidence)),
    )


def _tail_bounds(
    costs: np.ndarray, evidence: Evidence, plan: Plan, constraint: Chance
) -> dict[str, float | None]:
    confidence, epsilon = plan.corrected_confidence, constraint.epsilon
    result: dict[str, float | None] = {
        "value_at_risk_lower": tails.value_at_risk_lower(costs, epsilon, confidence, LOWER[evidence.method]),
        "value_at_risk_upper": tails.value_at_risk_upper(costs, epsilon, confidence, UPPER[evidence.method]),
        "conditional_value_at_risk_upper": None,
        "mean_upper": None,
    }
    if plan.cost_bound is not None and len(costs):
        if evidence.method == "anytime":
            # The bound at look j spends alpha / (j (j + 1)), which add up to alpha over all looks there can
            # be.
            confidence = 1 - (1 - confidence) / (evidence.looks * (evidence.looks + 1))
        bound = plan.cost_bound
        result["conditional_value_at_risk_upper"] = tails.tail_mean_upper(costs, epsilon, bound, confidence)
        result["mean_upper"] = tails.tail_mean_upper(costs, 1.0, bound, confidence)
    return result


def _sentence(
    verdict: Verdict,
    counts: tuple[int, int],
    interval: tuple[float, float],
    needed: int | None,
    plan: Plan,
    constraint: Chance,
) -> str:
    violations, episodes = counts
    if episodes == 0:
        return "No episode of this policy was played, so nothing is known about it."
    together = f" in all {plan.statements} statements together" if plan.statements > 1 else ""
    start = f"With {percent(plan.confidence)} confidence{together}"
    more = f"of episodes cost more than {constraint.limit:g}"
    seen = f"allowed are {percent(constraint.epsilon)}, and {violations:,} of {episodes:,} did"
    match verdict:  # rounded away from the verdict: a sentence must not claim more than its number
        case "SATISFIED":
            return f"{start}, at most {percent(_round(interval[1], math.ceil))} {more} ({seen})."
        case "VIOLATED":
            return f"{start}, more than {percent(_round(interval[0], math.floor))} {more} ({seen})."
    advice = f" About {needed:,} would decide, if the rate seen is the true one." if needed else ""
    bounds_text = f"{percent(interval[0])} and {percent(interval[1])}"
    return f"{start}, between {bounds_text} {more} ({seen}): these episodes cannot tell.{advice}"


def _round(value: float, rounding: Callable[[float], int]) -> float:
    """To four significant digits, up or down."""
    scale = 10 ** (3 - math.floor(math.log10(value))) if value > 0 else 1
    return rounding(value * scale) / scale
