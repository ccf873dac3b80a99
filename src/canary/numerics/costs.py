"""The cost of an episode: in units of its limit, shaped, squared, and when it violates the limit.

The shaped cost phi makes Cantelli's inequality waste less. With y = C / l the episode cost in limits
and a dead zone d in [0, 1),

    phi_d(y) = clip((y - d) / (1 - d), 0, 1)

is non-decreasing, and phi(y) = 1 for y >= 1. So every violation has X = phi_d(C / l) >= 1, and
Cantelli's inequality for X, with its mean mu < 1 and deviation sigma, gives for every law of the cost

    P(C > l) <= P(X >= 1) <= sigma^2 / (sigma^2 + (1 - mu)^2)

d = 0 saturates the cost at the limit. d -> 1 is the violation indicator, for which the inequality is
exact. Without a dead zone (None) phi(y) = y, the paper's own constraint. phi(y_{t+1}) - phi(y_t),
summed over an episode, telescopes to X.
"""

from typing import Any

import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Float


def in_limits(amount: Float[Array, "*batch"], limit: ArrayLike) -> Float[Array, "*batch"]:
    """amount / limit, correctly rounded.

    XLA turns a division by a constant into a product with its rounded reciprocal. Then costs and a
    limit that are both seven times larger would train another policy. A divisor that depends on the
    data is left alone.
    """
    return amount / (limit + 0 * amount)


# Any: arrays of numpy and of JAX both know `clip`.
def shaped(spent: Any, dead_zone: Any) -> Any:
    """phi_d of a cost in limits; the cost itself without a dead zone (None)."""
    if dead_zone is None:
        return spent
    return ((spent - dead_zone) / (1 - dead_zone)).clip(0, 1)


def augmented_cost(
    cost: Float[Array, "*batch"], spent: Float[Array, "*batch"], discount: Float[Array, "*batch"]
) -> Float[Array, "*batch"]:
    """c~_t = g_t c_t^2 + 2 y_t c_t, whose discounted sum over an episode is C^2 (paper eqs.
    square-cost, aug-cost)."""
    return discount * cost**2 + 2 * spent * cost


def violates(cost: Float[np.ndarray, "*episode"], limit: float) -> Bool[np.ndarray, "*episode"]:
    """C > limit, with the limit rounded to float32, the precision of the costs; NaN violates.

    Three steps of 0.1 give float32's 0.3, which is a little more than the 0.3 of a Python float.
    """
    with np.errstate(over="ignore"):  # beyond float32: infinity, which is above every limit
        return ~(np.asarray(cost).astype(np.float32) <= np.float32(limit))
