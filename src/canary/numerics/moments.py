"""Moments of the episode cost over the newest batches or, if those are few, over recent episodes.

A batch may hold few episodes (EcoAnt: about two), or none, which must never read as "cost 0". So
finished episodes go into a ring, and statistics are taken over its newest ones.
"""

import equinox as eqx
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Float, Int

from canary.numerics.costs import in_limits, shaped
from canary.types import EpisodeEnds, by_cost


class EpisodeWindow(eqx.Module):
    """Ring of the most recent valid episodes; costs in raw units."""

    cost: Float[Array, "ring"] | Float[Array, "ring cost"]
    reward: Float[Array, "ring"]
    """Undiscounted return."""
    length: Float[Array, "ring"]
    total: Int[Array, ""]
    """Episodes ever recorded."""
    new: Int[Array, ""]
    """Episodes recorded by the last batch."""

    def by_cost(self) -> "list[EpisodeWindow]":
        """The window as each cost sees it."""
        return by_cost(self, self.cost.ndim > 1, lambda window: (window.cost,))


class CostMoments(eqx.Module):
    """Plug-in moments of the (shaped) episode cost, in units of the limit."""

    mean: Float[Array, ""]
    variance: Float[Array, ""]
    length: Float[Array, ""]
    """Mean episode length, the factor between a per-step mean and an episode sum."""
    count: Float[Array, ""]


def empty_window(size: int, costs: tuple[int, ...] = ()) -> EpisodeWindow:
    """A ring of so many episodes; `costs` is the shape of an episode's cost."""
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
    """Marks the episodes of the last batch or, if those are fewer, so many of the newest."""
    size = window.cost.shape[0]
    age = (window.total - 1 - jnp.arange(size)) % size
    return age < jnp.minimum(jnp.maximum(window.new, episodes), window.total)


def cost_moments(
    window: EpisodeWindow, episodes: int, limit: ArrayLike, dead_zone: ArrayLike | None = None
) -> CostMoments:
    """Moments of phi(C / limit) over the recent episodes; NaN without any, never 0."""
    weight = recent(window, episodes).astype(window.cost.dtype)
    count = weight.sum()
    cost = shaped(in_limits(window.cost, limit), dead_zone)
    mean = (weight * cost).sum() / count
    variance = (weight * (cost - mean) ** 2).sum() / count
    return CostMoments(mean, variance, (weight * window.length).sum() / count, count)
