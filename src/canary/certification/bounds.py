"""Bounds on what a constraint limits: the violation probability, the mean cost, or the mean cost of
the worst episodes.

Chance   Clopper-Pearson for a fixed number of episodes, a mixture martingale for one that was not (`anytime`)
Mean     betting (`betting`), for either
CVaR     the integrated survival function (`tails`); the bound at look j of a test that may stop early spends
         alpha / (j (j + 1)), which add up to alpha over all looks there can be
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from canary.certification import anytime, betting, tails
from canary.certification.plan import Plan, largest_cost
from canary.constraints import Chance, Constraint, Mean
from canary.errors import CanaryError
from canary.numerics.binomial import clopper_pearson_lower, clopper_pearson_upper
from canary.numerics.violations import violates

Method = Literal["fixed", "anytime"]

UPPER = {"fixed": clopper_pearson_upper, "anytime": anytime.anytime_upper}
LOWER = {"fixed": clopper_pearson_lower, "anytime": anytime.anytime_lower}


@dataclass(frozen=True)
class Look:
    """When the data were looked at: by which method, and the how manieth look it was."""

    method: Method
    number: int

    def spent(self, confidence: float) -> float:
        """The confidence of a bound that is not valid at all times by itself."""
        if self.method == "fixed" or self.number == 0:
            return confidence
        return 1 - (1 - confidence) / (self.number * (self.number + 1))


def constraint_bounds(
    constraint: Constraint, costs: np.ndarray, look: Look, plan: Plan, confidence: float
) -> tuple[float, float]:
    """Lower and upper bound, each with the given confidence, from the costs in the order in which
    they were played."""
    if isinstance(constraint, Chance):
        violations = int(violates(costs, constraint.limit).sum())
        return probability_bounds(violations, len(costs), confidence, look.method)
    largest = largest_cost(plan, constraint)
    if len(costs) and costs.min() < 0:
        raise CanaryError(
            f"An episode cost {costs.min():g}: {constraint.text} can be certified only where no "
            "cost is negative."
        )
    if isinstance(constraint, Mean):
        return betting.mean_bounds(costs, constraint.limit, largest, confidence)
    level = look.spent(confidence)
    return (
        tails.tail_mean_lower(costs, constraint.share, level),
        tails.tail_mean_upper(costs, constraint.share, largest, level),
    )


def refuse_larger(costs: np.ndarray, plan: Plan) -> None:
    """No bound on a mean holds if an episode cost more than was said to be possible."""
    if plan.cost_bound is not None and len(costs) and costs.max() > plan.cost_bound * (1 + 1e-6):
        raise CanaryError(
            f"An episode cost {costs.max():g}, but the largest possible cost was said to be "
            f"{plan.cost_bound:g}; correct that or leave it out."
        )


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
