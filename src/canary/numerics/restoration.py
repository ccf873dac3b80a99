"""Restoring steps that do not throw the reward away.

A step that restores a constraint (tiers b and c of `trust_region`) knows no reward. Where the reward is sparse, the way to
safety leads through policies that earn nothing, and from there no gradient leads back. So the more of its best return a
policy has lost, the more its restoring steps turn towards the reward:

    u = cos φ · s^ + sin φ · e^,    e = g^ - min(g^·s^, 0) s^,    φ = ω π/2,    0 <= ω <= 1

in the H⁻¹ metric, where s^ is the restoring step and e^ what of the reward's gradient does not undo it, both of unit
length. At ω = 1 a step improves the reward and, to first order, leaves the constraint alone.
"""

import equinox as eqx
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from canary.numerics.trust_region import Tier, TrustRegionSolution

ALL_LOST = 3.0  # times the tolerated loss: beyond, restoring steps go for the reward alone


def lost_share(now: ArrayLike, best: ArrayLike) -> Float[Array, ""]:
    """How much of the best return is gone; 0 if nothing is, or while one of them is not known (NaN, -inf)."""
    known = jnp.isfinite(now) & jnp.isfinite(best)
    return jnp.where(known, jnp.maximum(jnp.subtract(best, now), 0) / jnp.maximum(jnp.abs(best), 1e-8), 0)


def reward_need(lost: Float[Array, ""], tolerated: float) -> Float[Array, ""]:
    """ω: from 0, up to the tolerated loss, to 1, from `ALL_LOST` times that on."""
    return jnp.clip((lost / tolerated - 1) / (ALL_LOST - 1), 0, 1)


def turn_to_reward(
    solution: TrustRegionSolution,
    gram: Float[Array, "vectors vectors"],
    values: Float[Array, "constraints"],
    need: Float[Array, ""],
) -> TrustRegionSolution:
    """A restoring solution for the vectors (g, b_1, ...) turned towards g, as long as before; any other as it is.

    Tier, reachable minima and multipliers are those before turning.
    """
    smallest = jnp.finfo(gram.dtype).tiny
    restores = (solution.tier == Tier.BOUND_RESTORATION) | (solution.tier == Tier.MEAN_RESTORATION)
    length = _length(solution.coefficients, gram)
    step = solution.coefficients / jnp.maximum(length, smallest)
    reward = jnp.zeros_like(step).at[0].set(1 / jnp.sqrt(jnp.maximum(gram[0, 0], smallest)))
    aside = reward - jnp.minimum(reward @ gram @ step, 0) * step
    size = _length(aside, gram)
    has_aside = size > jnp.sqrt(
        jnp.finfo(gram.dtype).eps
    )  # not if the reward points right against the step, or nowhere
    usable = restores & (need > 0) & has_aside
    angle = need * jnp.pi / 2
    turned = jnp.cos(angle) * step + jnp.sin(angle) * aside / jnp.where(usable, size, 1)
    turned = turned * length / jnp.maximum(_length(turned, gram), smallest)
    coefficients = jnp.where(usable, turned, solution.coefficients)
    changes = gram @ coefficients
    return eqx.tree_at(
        lambda s: (s.coefficients, s.predicted_objective, s.predicted_values),
        solution,
        (coefficients, changes[0], values + changes[1:]),
    )


def _length(coefficients: Float[Array, "vectors"], gram: Float[Array, "vectors vectors"]) -> Float[Array, ""]:
    return jnp.sqrt(jnp.maximum(coefficients @ gram @ coefficients, 0))
