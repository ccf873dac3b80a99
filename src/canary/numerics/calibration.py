"""How many standard deviations above its mean the cost limit must stand, measured instead of bounded.

Cantelli's inequality asks for mu + kappa sigma <= l with kappa = sqrt(1/epsilon - 1), whatever the law of the cost is. For
the law at hand the smallest sufficient multiple is the (1 - epsilon) quantile of (C - mu) / sigma. An order statistic of
recent episodes bounds that quantile from above with a stated confidence and without assumptions on the law: the
(k+1)-largest of n costs is at least the quantile with probability 1 - P(Bin(n, epsilon) <= k).

The episodes come from policies that changed meanwhile, so this guides training and certifies nothing.
"""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int
from scipy.special import bdtr

LEAST_MULTIPLE = 1.0  # fewer deviations than one are never trusted


def allowed_exceedances(episodes: int, epsilon: float, confidence: float) -> Int[np.ndarray, "count"]:
    """For n = 0, ..., `episodes`: the largest k with P(Bin(n, epsilon) <= k) <= 1 - confidence; -1 if there is none.

    If at most k of n costs are above a value, that value is an upper confidence bound on the (1 - epsilon) quantile.
    """
    # Above a confidence of one half, k stays below the median of the count, which is at most its mean rounded up.
    most = int(episodes * epsilon) + 1 if confidence >= 0.5 else episodes
    k, n = np.arange(most + 1.0), np.arange(episodes + 1.0)[:, None]
    unlikely = bdtr(np.minimum(k, n), n.astype(int), epsilon) <= 1 - confidence
    return (unlikely & (k <= n)).sum(1) - 1


def tail_multiple(
    costs: Float[Array, "ring"], counts: Bool[Array, "ring"], epsilon: float, confidence: float
) -> Float[Array, ""]:
    """Upper confidence bound on the multiple kappa, at most Cantelli's, from the costs that count."""
    largest = (1 / epsilon - 1) ** 0.5
    number = counts.sum()
    allowed = jnp.asarray(allowed_exceedances(costs.shape[0], epsilon, confidence))[number]
    mean = jnp.where(counts, costs, 0).sum() / number
    deviation = jnp.sqrt(jnp.where(counts, (costs - mean) ** 2, 0).sum() / number)
    descending = -jnp.sort(-jnp.where(counts, costs, -jnp.inf))
    multiple = (descending[jnp.maximum(allowed, 0)] - mean) / jnp.where(deviation > 0, deviation, 1)
    known = (allowed >= 0) & (deviation > 0)
    return jnp.where(known, jnp.clip(multiple, min(LEAST_MULTIPLE, largest), largest), largest)
