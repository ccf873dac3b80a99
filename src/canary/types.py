"""The records that travel between the rooms, and the one sign convention: a constraint value <= 0 is safe.

Units. Costs are divided by the limit where they enter a rollout, so every cost-type quantity below (costs, spent cost,
values, advantages, moments) is in units of the limit and the limit itself is 1. Only what is reported to a person, the
episode cost, and the test C > limit stay in raw units, so that rounding can never flip a tie.
"""

import math
from dataclasses import dataclass

import equinox as eqx
from jaxtyping import Array, Bool, Float, Int, Shaped

from canary.errors import CanaryError


@dataclass(frozen=True, kw_only=True)
class Chance:
    """The chance constraint P(C > limit) <= epsilon on the episode cost C (paper eq. var-bound)."""

    limit: float
    """Cost limit: an episode whose cost is strictly above it is a violation."""
    epsilon: float
    """Largest allowed probability of a violation."""

    def __post_init__(self):
        if not (math.isfinite(self.limit) and self.limit > 0):
            raise CanaryError(f"The limit must be a positive finite number, not {self.limit!r}.")
        if not 0 < self.epsilon < 1:
            raise CanaryError(f"Epsilon must lie strictly between 0 and 1, not {self.epsilon!r}.")


class EpisodeEnds(eqx.Module):
    """The episodes that ended in a rollout: entries count only where `ended` holds."""

    ended: Bool[Array, "*batch"]
    valid: Bool[Array, "*batch"]
    """False for a first episode that was started in mid-clock (staggered starts); such episodes enter no statistic."""
    reward: Float[Array, "*batch"]
    """Undiscounted return."""
    cost: Float[Array, "*batch"]
    """Cost return C in raw units (discounted by the cost discount, which is 1 unless set otherwise)."""
    length: Int[Array, "*batch"]
    terminated: Bool[Array, "*batch"]


class Rollout(eqx.Module):
    """A batch of on-policy experience; time along the first axis, parallel environments along the second."""

    inputs: Float[Array, "time env input"]
    """x_t = (s_t, g_t, y_t), what the policy sees (paper eq. aug-state)."""
    next_inputs: Float[Array, "time env input"]
    """x_{t+1} before any reset."""
    elapsed: Float[Array, "time env"]
    """t / horizon."""
    next_elapsed: Float[Array, "time env"]
    action: Shaped[Array, "time env ..."]
    reward: Float[Array, "time env"]
    cost: Float[Array, "time env"]
    spent: Float[Array, "time env"]
    """y_t, the discounted cost spent before step t (paper eq. y-recursion)."""
    spent_raw: Float[Array, "time env"]
    """y_t in raw units: the rounding of a division must not decide whether it exceeds the limit."""
    discount: Float[Array, "time env"]
    """g_t = cost_discount ** t."""
    terminated: Bool[Array, "time env"]
    truncated: Bool[Array, "time env"]
    episodes: EpisodeEnds

    @property
    def done(self) -> Bool[Array, "time env"]:
        return self.terminated | self.truncated


Metrics = dict[str, Float[Array, ""]]
