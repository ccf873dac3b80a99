"""Running mean and variance of observations (Welford's merge), updated after each rollout; and the
numbers that are safe to compute with."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

CLIP = 10.0  # largest observation that a network sees, in deviations
FLOOR = 1e-8  # smallest variance
LARGEST = 1e15  # the square of a larger number may overflow


def sane(numbers: Any) -> Any:
    """Mask of the entries that are finite and below LARGEST in size; for numpy and JAX arrays."""
    return abs(numbers) <= LARGEST


class RunningStatistics(eqx.Module):
    mean: Float[Array, "obs"]
    squares: Float[Array, "obs"]
    """Sum of squared deviations from the mean."""
    count: Float[Array, ""]


def initial_statistics(size: int) -> RunningStatistics:
    return RunningStatistics(jnp.zeros(size), jnp.zeros(size), jnp.zeros(()))


def merge(statistics: RunningStatistics, batch: Float[Array, "*batch obs"]) -> RunningStatistics:
    """The statistics of all observations so far. Entries that are not sane count as the mean,
    which they would destroy."""
    rows = batch.reshape(-1, batch.shape[-1])
    rows = jnp.where(sane(rows), rows, statistics.mean)
    count = statistics.count + rows.shape[0]
    batch_mean = rows.mean(0)
    shift = batch_mean - statistics.mean
    share = rows.shape[0] / count
    squares = ((rows - batch_mean) ** 2).sum(0) + shift**2 * statistics.count * share
    return RunningStatistics(statistics.mean + shift * share, statistics.squares + squares, count)


def normalise(
    statistics: RunningStatistics, observation: Float[Array, "*batch obs"]
) -> Float[Array, "*batch obs"]:
    """(s - mean) / deviation, clipped to +-10; the clip alone before the first observation."""
    variance = jnp.where(
        statistics.count > 1, statistics.squares / jnp.maximum(statistics.count, 1), 1.0
    )
    return jnp.clip((observation - statistics.mean) / jnp.sqrt(variance + FLOOR), -CLIP, CLIP)
