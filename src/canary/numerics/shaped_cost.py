"""The shaped cost phi: Cantelli's inequality, applied to a variable of which it wastes less.

With y = C / l the episode cost in limits and a dead zone d in [0, 1),

    phi_d(y) = clip((y - d) / (1 - d), 0, 1)

is non-decreasing with phi(y) = 1 for y >= 1. Every violation therefore has X = phi_d(C / l) >= 1,
and Cantelli's inequality for X, with mu and sigma those of X, gives for mu < 1

    P(C > l) <= P(X >= 1) <= sigma^2 / (sigma^2 + (1 - mu)^2)

whatever the law of the cost is. d = 0 saturates the cost at the limit; d -> 1 is the violation
indicator, for which Cantelli's inequality is exact. No dead zone at all (None) is phi(y) = y, the
paper's own constraint.

phi(y_{t+1}) - phi(y_t), summed over an episode, telescopes to X because y_0 = 0 and phi(0) = 0.
"""

from typing import Any


# Any: an array of numpy or of JAX goes in and the same kind comes out; both know `clip`.
def shaped(spent: Any, dead_zone: Any) -> Any:
    """phi_d of a cost in limits; the cost itself if there is no dead zone (None)."""
    if dead_zone is None:
        return spent
    return ((spent - dead_zone) / (1 - dead_zone)).clip(0, 1)
