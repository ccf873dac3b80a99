"""From the episodes of one policy to its verdict: its constraint is SATISFIED, VIOLATED or
UNDECIDED.

SATISFIED: the upper bound on what the constraint limits (P(C > limit), the mean cost or CVaR) is
within what is allowed. VIOLATED: the lower bound is above it. Only one of the two can be wrong for
a given law of the costs, so with each bound at confidence 1 - alpha a wrong verdict has probability
<= alpha.

Several statements (seeds, changed environments) are corrected by Bonferroni: alpha is divided by
their number. Then all of them are right together with the stated confidence, whatever their
dependence, so one may pick the best-looking seed afterwards and keep its bound. Holm's method
rejects a little more but yields no simple bounds, hence Bonferroni.
"""

from dataclasses import dataclass

import numpy as np

from canary.certification import order, tails
from canary.certification.bounds import LOWER, UPPER, Look, Method, constraint_bounds, refuse_larger
from canary.certification.plan import POWER, Plan
from canary.certification.sample_size import planned_episodes
from canary.certification.sentences import Verdict, chance_sentence, mean_sentence, percent
from canary.constraints import Chance, Constraint, Mean
from canary.numerics.violations import violates


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """What the episodes of one frozen policy showed. Every bound is a function of this, the plan
    and the constraint.
    """

    policy_sha256: str
    method: Method
    """anytime: the number of episodes may have depended on what they showed; fixed: it was decided
    before."""
    looks: int
    """How often the test looked at its data: batches played."""
    interrupted: bool
    costs: tuple[tuple[float, int], ...]
    """The distinct episode costs in ascending order, each with the number of episodes that had
    it."""
    order: str
    """Which of these costs each episode had, in the order of their numbers (`order.encode`)."""
    return_mean: float | None
    length_mean: float | None


@dataclass(frozen=True, kw_only=True)
class Assessment:
    """One policy's numbers. Each bound holds with the corrected confidence; those named `alone`,
    with the plain one.
    """

    episodes: int
    violations: int
    rate: float | None
    lower: float
    """On what the constraint limits: P(C > limit), the mean cost, or CVaR."""
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
    """Cantelli's bound with the sample's moments in place of the true ones: a description, not a
    certificate.
    """
    episodes_needed: int | None
    """Fixed number of episodes that would decide, with probability 0.9, were the observed rate the
    true one.
    """
    verdict: Verdict
    sentence: str


def assess(evidence: Evidence, plan: Plan, constraint: Constraint) -> Assessment:
    """All bounds, the verdict, and its sentence."""
    costs = listed_costs(evidence, constraint)
    episodes, violations = len(costs), int(violates(costs, constraint.limit).sum())
    refuse_larger(costs, plan)
    look, allowed = Look(evidence.method, evidence.looks), constraint.allowed
    bounds = constraint_bounds(constraint, costs, look, plan, plan.corrected_confidence)
    alone = constraint_bounds(constraint, costs, look, plan, plan.confidence)
    rate = violations / episodes if episodes else None
    needed = None
    if rate is not None and isinstance(constraint, Chance):
        needed = planned_episodes(
            constraint.epsilon, rate, confidence=plan.corrected_confidence, power=POWER
        )
    verdict = decide(*bounds, allowed)
    return Assessment(
        episodes=episodes,
        violations=violations,
        rate=rate,
        lower=bounds[0],
        upper=bounds[1],
        alone_lower=alone[0],
        alone_upper=alone[1],
        alone_verdict=decide(*alone, allowed),
        **_tail_bounds(costs, look, plan, constraint, bounds[1]),
        mean=float(costs.mean()) if episodes else None,
        deviation=float(costs.std()) if episodes else None,
        cantelli_plug_in=tails.cantelli_plug_in(costs, constraint.limit) if episodes else None,
        episodes_needed=needed,
        verdict=verdict,
        sentence=_sentence(verdict, costs, bounds, needed, plan, constraint),
    )


def listed_costs(evidence: Evidence, constraint: Constraint) -> np.ndarray:
    """All costs; in the order of the episodes where the bound depends on it."""
    values, counts = zip(*evidence.costs, strict=True) if evidence.costs else ((), ())
    if isinstance(constraint, Mean):
        return np.array(values, float)[order.decode(evidence.order, counts)]
    return np.repeat(np.array(values, float), np.array(counts, int))


def decide(lower: float, upper: float, allowed: float) -> Verdict:
    if upper <= allowed:
        return "SATISFIED"
    return "VIOLATED" if lower > allowed else "UNDECIDED"


def overall(
    assessments: list[Assessment],
    seeds: list[int],
    plan: Plan,
    promise: str = "the limit",
    place: str = "the environment they were trained in",
) -> tuple[Verdict, str]:
    """The verdict on a set of policies: SATISFIED if all are, VIOLATED if any is, and which ones
    are what."""
    if not assessments:
        return (
            "UNDECIDED",
            "No policy was played in the environment it was trained in, so nothing is known.",
        )
    if len(assessments) == 1:
        return assessments[0].verdict, assessments[0].sentence
    groups = {
        verdict: [
            str(s) for s, one in zip(seeds, assessments, strict=True) if one.verdict == verdict
        ]
        for verdict in ("SATISFIED", "VIOLATED", "UNDECIDED")
    }
    verdict: Verdict = (
        "VIOLATED" if groups["VIOLATED"] else "UNDECIDED" if groups["UNDECIDED"] else "SATISFIED"
    )
    start = (
        f"With {percent(plan.confidence)} confidence in all {plan.statements} statements together"
    )
    where = f" in {place}" if plan.statements > len(seeds) else ""
    phrases = {
        "SATISFIED": f"keep {promise}",
        "VIOLATED": f"break {promise}",
        "UNDECIDED": "remain undecided",
    }
    if len(groups[verdict]) == len(seeds):
        return (
            verdict,
            f"{start}, the policies of all {len(seeds)} seeds {phrases[verdict]}{where}.",
        )
    parts = [f"{phrases[name]}: {', '.join(group)}" for name, group in groups.items() if group]
    return verdict, f"{start}, these seeds {'; these '.join(parts)}{where}."


def _tail_bounds(
    costs: np.ndarray, look: Look, plan: Plan, constraint: Constraint, judged: float
) -> dict[str, float | None]:
    """Bounds beside the one that is judged. Under a mean constraint no share of the worst episodes
    is named."""
    result: dict[str, float | None] = dict.fromkeys(
        (
            "value_at_risk_lower",
            "value_at_risk_upper",
            "conditional_value_at_risk_upper",
            "mean_upper",
        )
    )
    if isinstance(constraint, Mean):
        return result | {"mean_upper": judged}
    confidence, epsilon = plan.corrected_confidence, constraint.epsilon
    result["value_at_risk_lower"] = tails.value_at_risk_lower(
        costs, epsilon, confidence, LOWER[look.method]
    )
    result["value_at_risk_upper"] = tails.value_at_risk_upper(
        costs, epsilon, confidence, UPPER[look.method]
    )
    if plan.cost_bound is not None and len(costs):
        level, bound = look.spent(confidence), plan.cost_bound
        result["conditional_value_at_risk_upper"] = tails.tail_mean_upper(
            costs, epsilon, bound, level
        )
        result["mean_upper"] = tails.tail_mean_upper(costs, 1.0, bound, level)
    return result


def _sentence(
    verdict: Verdict,
    costs: np.ndarray,
    bounds: tuple[float, float],
    needed: int | None,
    plan: Plan,
    constraint: Constraint,
) -> str:
    if len(costs) == 0:
        return "No episode of this policy was played, so nothing is known about it."
    if isinstance(constraint, Chance):
        violations = int(violates(costs, constraint.limit).sum())
        return chance_sentence(verdict, (violations, len(costs)), bounds, needed, plan, constraint)
    return mean_sentence(verdict, (len(costs), constraint.measure(costs)), bounds, plan, constraint)
