"""The episode cost under random actions, and what it says about a limit: trivial, hopeless or interesting.

Random actions are no policy that anybody wants; they are what training starts from, and their costs show the scale.
"""

from typing import Any

import numpy as np
from jaxtyping import Float

from canary.numerics.binomial import clopper_pearson_interval

NOTHING_TO_LIMIT = (
    "Most random episodes cost nothing, or less than that; try limits below the largest cost seen."
)
QUANTILES = (0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95)


def describe_costs(costs: Float[np.ndarray, "episode"]) -> dict[str, Any]:
    """Number, mean, deviation, range and quantiles."""
    return {
        "episodes": len(costs),
        "mean": float(costs.mean()),
        "deviation": float(costs.std()),
        "smallest": float(costs.min()),
        "largest": float(costs.max()),
        "quantiles": {f"{share:g}": float(np.quantile(costs, share)) for share in QUANTILES},
    }


def interesting_limits(costs: Float[np.ndarray, "episode"]) -> list[float]:
    """Limits that a random policy keeps in about a tenth, a quarter and half of its episodes, to two digits."""
    found = {float(f"{np.quantile(costs, share):.2g}") for share in (0.1, 0.25, 0.5)}
    return sorted(limit for limit in found if limit > 0)


def advise(costs: Float[np.ndarray, "episode"], limit: float | None, epsilon: float | None) -> dict[str, Any]:
    """A sentence about the limit, if there is one, and limits worth trying."""
    limits = interesting_limits(costs)
    worth = f"Limits worth trying: {', '.join(f'{value:g}' for value in limits)}." if limits else ""
    if not costs.any():
        text = "No random episode has a cost, so nothing can be said about limits; see where the cost comes from."
        return {"kind": "unknown", "limits": [], "text": text}
    if limit is None or epsilon is None:
        return {"kind": "no limit", "limits": limits, "text": worth or NOTHING_TO_LIMIT}
    violations = int((costs > limit).sum())
    low, high = map(float, clopper_pearson_interval(violations, len(costs)))
    seen = f"{violations} of {len(costs)} random episodes cost more than {limit:g}"
    if high <= epsilon:
        text = f"{seen}: random actions keep the limit already, so it is trivial unless reward lies beyond it. {worth}"
        return {"kind": "trivial", "limits": limits, "text": text.strip(), "violation_interval": [low, high]}
    if violations == len(costs):
        cheapest = costs.min()
        text = (
            f"{seen}, and the cheapest costs {cheapest:.4g}: the limit may be hopeless. Training starts far from it; "
            f"begin with a larger one. {worth}"
        )
        return {"kind": "hopeless", "limits": limits, "text": text.strip(), "violation_interval": [low, high]}
    text = f"{seen} (95% interval {low:.3f} to {high:.3f} against epsilon {epsilon:g}): the limit is interesting."
    return {"kind": "interesting", "limits": limits, "text": text, "violation_interval": [low, high]}
