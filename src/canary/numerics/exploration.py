"""Restoring steps that keep a policy exploring.

A policy that became deterministic has no gradient left and stays as it is, whatever its constraint says. One that
may improve is free to do so; one that must restore its constraint has to try something else. So while too
little exploration is left, restoring steps s (tiers b and c of `trust_region`) are shared with the entropy:

    (s + ω s_h) / (1 + ω),   s_h = √(2δ) H⁻¹h / √(h'H⁻¹h),   0 <= ω <= 1

where h is the gradient of the entropy and s_h the step of most entropy in the trust region. It is no longer than s, so
it raises what s lowers by at most as much, and the two together do not raise it.
"""

import equinox as eqx
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from canary.numerics.trust_region import Tier, TrustRegionSolution, solve


def exploration_need(left: Float[Array, ""], floor: ArrayLike) -> Float[Array, ""]:
    """ω: from 0, where the exploration that is left is at its floor or above, to 1, where there is none."""
    return jnp.clip(1 - left / floor, 0, 1)


def solve_exploring(
    gram: Float[Array, "vectors vectors"],
    values: Float[Array, "constraints"],
    radius: ArrayLike,
    need: Float[Array, ""],
) -> TrustRegionSolution:
    """`solve` for the vectors (g, b_1, ...), with restoring steps shared with h, the last vector of `gram`.

    Tier, reachable minima and multipliers are those before sharing.
    """
    solution = solve(gram[:-1, :-1], values, radius)
    square = gram[-1, -1]
    present = square >= jnp.finfo(gram.dtype).tiny
    restores = (solution.tier == Tier.BOUND_RESTORATION) | (solution.tier == Tier.MEAN_RESTORATION)
    share = jnp.where(restores & present, need / (1 + need), 0)
    most_entropy = jnp.sqrt(2 * radius / jnp.where(present, square, 1))
    coefficients = jnp.append((1 - share) * solution.coefficients, share * most_entropy)
    changes = gram[:-1] @ coefficients
    return eqx.tree_at(
        lambda s: (s.coefficients, s.predicted_objective, s.predicted_values),
        solution,
        (coefficients, changes[0], values + changes[1:]),
    )
