"""What a sample of episode costs says about a constraint: the measured value with a two-sided
interval. No JAX here.

    Chance   the share of violations, with its exact (Clopper-Pearson) interval
    Mean     the mean m,                          m +- z s / sqrt(n)
    CVaR     eta + mean (C - eta)+ / eps,         +- z sd((C - eta)+) / (eps sqrt(n)),  eta = VaR of the sample

    Joint    the largest of these in units of what is allowed, and the largest ends of their intervals

Those of a mean and of a CVaR are the normal approximation: a description for people who watch. `canary certify` has
bounds that hold.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from canary.constraints import Chance, Constraint, Joint, own_costs, threshold
from canary.numerics.binomial import clopper_pearson_interval


class Measurement(NamedTuple):
    value: float
    lower: float
    upper: float


def measurement(
    constraint: Constraint, costs: Float[np.ndarray, "episode ..."], confidence: float = 0.95
) -> Measurement | None:
    """The constraint's value on these episodes; None if there is none."""
    costs = np.asarray(costs, float)
    if not len(costs):
        return None
    value = constraint.measure(costs)
    if isinstance(constraint, Joint):
        found = [
            np.array(measurement(part, own_costs(part, costs), confidence)) / part.allowed
            for part in constraint.parts
        ]
        return Measurement(*(float(end) for end in np.max(found, axis=0)))
    if isinstance(constraint, Chance):
        lower, upper = clopper_pearson_interval(round(value * len(costs)), len(costs), confidence)
        return Measurement(value, float(lower), float(upper))
    from scipy.special import ndtri

    tail = (
        costs
        if constraint.share == 1
        else np.maximum(costs - threshold(costs, constraint.share), 0)
    )
    half = float(
        ndtri((1 + confidence) / 2) * tail.std() / (constraint.share * np.sqrt(len(costs)))
    )
    return Measurement(value, value - half, value + half)
