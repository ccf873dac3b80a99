"""Is a limit trivial, hopeless or interesting, judged by the costs of random episodes?"""

from typing import Any

import numpy as np
from jaxtyping import Float

from canary.constraints import Chance, Constraint
from canary.numerics.binomial import clopper_pearson_interval

NOTHING_TO_LIMIT = (
    "Most random episodes cost nothing, or less than that; try limits below the largest cost seen."
)
NO_COST = "No random episode has a cost, so nothing can be said about limits; see where the cost comes from."
Costs = Float[np.ndarray, "episode"]


def advise(costs: Costs, constraint: Constraint | None) -> dict[str, Any]:
    """A sentence about the limit, if there is one, and limits worth trying."""
    if not costs.any():
        return {"kind": "unknown", "limits": [], "text": NO_COST}
    limits = interesting_limits(costs, constraint)
    worth = f"Limits worth trying: {', '.join(f'{value:g}' for value in limits)}." if limits else ""
    if constraint is None:
        return {"kind": "no limit", "limits": limits, "text": worth or NOTHING_TO_LIMIT}
    if isinstance(constraint, Chance):
        kind, seen, evidence = _about_chance(costs, constraint)
    else:
        kind, seen, evidence = _about_mean(costs, constraint)
    text = {
        "trivial": f"{seen}: random actions keep the limit already, so it is trivial unless reward "
        f"lies beyond it. {worth}",
        "hopeless": f"{seen}, and the cheapest costs {costs.min():.4g}: the limit may be hopeless. "
        f"Training starts far from it; begin with a larger one. {worth}",
        "interesting": f"{seen}: the limit is interesting.",
    }[kind]
    return {"kind": kind, "limits": limits, "text": text.strip()} | evidence


def interesting_limits(costs: Costs, constraint: Constraint | None = None) -> list[float]:
    """Limits, to two digits, that a random policy keeps in about a tenth, a quarter and half of its
    episodes; of a limit on a mean, some below that of a random policy."""
    if constraint is None or isinstance(constraint, Chance):
        found = [np.quantile(costs, share) for share in (0.1, 0.25, 0.5)]
    else:
        found = [share * constraint.measure(costs) for share in (0.25, 0.5, 0.75)]
    return sorted({float(f"{limit:.2g}") for limit in found if limit > 0})


def _about_chance(costs: Costs, constraint: Chance) -> tuple[str, str, dict[str, Any]]:
    limit, epsilon = constraint.limit, constraint.epsilon
    violations = int((costs > limit).sum())
    low, high = map(float, clopper_pearson_interval(violations, len(costs)))
    seen = f"{violations} of {len(costs)} random episodes cost more than {limit:g}"
    evidence = {"violation_interval": [low, high]}
    if high <= epsilon:
        return "trivial", seen, evidence
    if violations == len(costs):
        return "hopeless", seen, evidence
    against = f"(95% interval {low:.3f} to {high:.3f} against epsilon {epsilon:g})"
    return "interesting", f"{seen} {against}", evidence


def _about_mean(costs: Costs, constraint: Constraint) -> tuple[str, str, dict[str, Any]]:
    """Of all episodes, or of the worst ones."""
    found = constraint.measure(costs)
    seen = (
        f"The {constraint.label} of {len(costs)} random episodes is {found:.4g}, against a limit "
        f"of {constraint.limit:g}"
    )
    evidence = {"measured": found}
    if costs.min() > constraint.limit:
        return "hopeless", seen, evidence
    return ("trivial" if found <= constraint.limit else "interesting"), seen, evidence
