"""The cost of an episode: in units of its limit, shaped, squared; violations; and moments over
recent episodes.

The shaped cost phi makes Cantelli's inequality tighter. With y = C / l the episode cost in units of
the limit and a dead zone d in [0, 1),

    phi_d(y) = clip((y - d) / (1 - d), 0, 1)

is non-decreasing, and phi(y) = 1 for y >= 1. So every violation has X = phi_d(C / l) >= 1, and
Cantelli's inequality for X, with its mean mu < 1 and deviation sigma, gives for every law of the cost

    P(C > l) <= P(X >= 1) <= sigma^2 / (sigma^2 + (1 - mu)^2)

With d = 0 the cost saturates at the limit. For d -> 1 it is the violation indicator, for which the
inequality is exact. Without a dead zone (None) phi(y) = y, the paper's constraint. The sum of
phi(y_{t+1}) - phi(y_t) over an episode telescopes to X.

In a batch few episodes may end (EcoAnt: about two), or none; no episode must not count as cost 0.
So a ring stores the episodes that ended, and moments are taken over the newest ones.
"""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Float, Int

from canary.numerics.risk import violation_rate
from canary.types import EpisodeEnds, Metrics, by_cost, numbered


def in_limits(amount: Float[Array, "*batch"], limit: ArrayLike) -> Float[Array, "*batch"]:
    """amount / limit, correctly rounded.

    XLA turns a division by a constant into a product with its rounded reciprocal. Then costs and a
    limit that are both seven times larger would train another policy. XLA does not rewrite a
    divisor that depends on the data.
    """
    return amount / (limit + 0 * amount)


# Any: arrays of numpy and of JAX both have `clip`.
def shaped(spent: Any, dead_zone: Any) -> Any:
    """phi_d of a cost in units of the limit; the cost itself if the dead zone is None."""
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

    In float32 three steps of 0.1 cost 0.30000001, which is more than a limit of 0.3 in Python.
    """
    with np.errstate(over="ignore"):  # beyond float32: infinity, which is above every limit
        return ~(np.asarray(cost).astype(np.float32) <= np.float32(limit))


class EpisodeWindow(eqx.Module):
    """Ring of the newest valid episodes; costs in raw units."""

    cost: Float[Array, "ring"] | Float[Array, "ring cost"]
    reward: Float[Array, "ring"]
    """Undiscounted return."""
    length: Float[Array, "ring"]
    total: Int[Array, ""]
    """Episodes recorded so far."""
    new: Int[Array, ""]
    """Episodes recorded by the last batch."""

    def by_cost(self) -> "list[EpisodeWindow]":
        """A window for each cost."""
        return by_cost(self, self.cost.ndim > 1, lambda window: (window.cost,))


class CostMoments(eqx.Module):
    """Moments of the (shaped) episode cost in units of the limit."""

    mean: Float[Array, ""]
    variance: Float[Array, ""]
    length: Float[Array, ""]
    """Mean length of the episodes."""
    count: Float[Array, ""]
    """Number of episodes."""


def empty_window(size: int, costs: tuple[int, ...] = ()) -> EpisodeWindow:
    """A ring of `size` episodes; `costs` is the shape of an episode's cost."""
    zeros, none = jnp.zeros(size), jnp.zeros((), jnp.int32)
    return EpisodeWindow(jnp.zeros((size, *costs)), zeros, zeros, none, none)


def record_episodes(window: EpisodeWindow, ends: EpisodeEnds) -> EpisodeWindow:
    """Append the valid episodes of a batch in the order in which they ended."""
    size = window.cost.shape[0]
    counts = (ends.ended & ends.valid).reshape(-1)
    if counts.shape[0] > size:
        raise ValueError("the ring must hold at least one batch of steps")
    order = jnp.cumsum(counts) - 1
    # `size` is out of range: dropped
    place = jnp.where(counts, (window.total + order) % size, size)
    new = counts.sum(dtype=jnp.int32)

    def put(ring: Array, values: Array) -> Array:
        return ring.at[place].set(values.reshape(-1, *ring.shape[1:]), mode="drop")

    return EpisodeWindow(
        cost=put(window.cost, ends.cost),
        reward=put(window.reward, ends.reward),
        length=put(window.length, ends.length.astype(jnp.float32)),
        total=window.total + new,
        new=new,
    )


def recent(window: EpisodeWindow, episodes: int) -> Bool[Array, "ring"]:
    """Marks the episodes of the last batch, or the newest `episodes` if fewer ended in it."""
    size = window.cost.shape[0]
    age = (window.total - 1 - jnp.arange(size)) % size
    return age < jnp.minimum(jnp.maximum(window.new, episodes), window.total)


def cost_moments(
    window: EpisodeWindow, episodes: int, limit: ArrayLike, dead_zone: ArrayLike | None = None
) -> CostMoments:
    """Moments of phi(C / limit) over the recent episodes; NaN without any."""
    weight = recent(window, episodes).astype(window.cost.dtype)
    count = weight.sum()
    cost = shaped(in_limits(window.cost, limit), dead_zone)
    mean = (weight * cost).sum() / count
    variance = (weight * (cost - mean) ** 2).sum() / count
    return CostMoments(mean, variance, (weight * window.length).sum() / count, count)


def episode_metrics(window: EpisodeWindow, episodes: int, limit: Float[Array, "..."]) -> Metrics:
    """Cost statistics of the recent episodes, in raw units; NaN without any."""
    if limit.ndim:
        pairs = zip(window.by_cost(), limit, strict=True)
        return numbered([episode_metrics(each, episodes, own) for each, own in pairs])
    moments = cost_moments(window, episodes, limit)
    rate = violation_rate(window.cost, limit, recent(window, episodes))
    return {
        "cost_mean": moments.mean * limit,
        "cost_deviation": jnp.sqrt(moments.variance) * limit,
        "violation_estimate": jnp.where(moments.count > 0, rate, jnp.nan),
        "window_episodes": moments.count,
    }
