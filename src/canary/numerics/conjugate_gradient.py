"""Conjugate gradients: solve H x = b when only products with H are available.

The paper's closed-form solver (appendix "Closed-Form Solver") needs H⁻¹g, H⁻¹b_B and H⁻¹b_μ, where H
is the Hessian of the mean KL divergence. This module solves for one right-hand side; under `vmap`,
one batched product serves several.
"""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

Product = Callable[[Float[Array, "params"]], Float[Array, "params"]]


class _State(eqx.Module):
    solution: Float[Array, "params"]
    residual: Float[Array, "params"]
    direction: Float[Array, "params"]
    squared_residual: Float[Array, ""]
    iteration: Int[Array, ""]
    broken: Bool[Array, ""]


def conjugate_gradient(
    product: Product, rhs: Float[Array, "params"], *, iterations: int, tolerance: float
) -> tuple[Float[Array, "params"], Float[Array, "params"], Float[Array, ""]]:
    """Solve H x = rhs for a symmetric positive definite H, in at most `iterations` products or
    until ‖rhs - H x‖ <= tolerance · ‖rhs‖. Returns x, H x and ‖rhs - H x‖ / ‖rhs‖.

    The right-hand side is scaled to unit norm first, so its size does not change the iteration.
    With a non-finite right-hand side the loop stops at once and the result is not finite.
    """
    norm = _norm(rhs)
    unit = rhs / jnp.where(norm == 0, 1, norm)

    def unfinished(state: _State) -> Bool[Array, ""]:
        # A comparison with NaN is false: a non-finite residual ends the loop.
        return (
            (state.squared_residual > tolerance**2) & (state.iteration < iterations) & ~state.broken
        )

    def advance(state: _State) -> _State:
        image = product(state.direction)
        curvature = state.direction @ image
        # Rounding can make the curvature of a nearly solved system non-positive.
        broken = ~(curvature > 0)
        length = jnp.where(broken, 0, state.squared_residual / jnp.where(broken, 1, curvature))
        residual = state.residual - length * image
        squared_residual = residual @ residual
        return _State(
            solution=state.solution + length * state.direction,
            residual=jnp.where(broken, state.residual, residual),
            direction=residual + (squared_residual / state.squared_residual) * state.direction,
            squared_residual=jnp.where(broken, state.squared_residual, squared_residual),
            iteration=state.iteration + 1,
            broken=broken,
        )

    start = _State(
        solution=jnp.zeros_like(unit),
        residual=unit,
        direction=unit,
        squared_residual=unit @ unit,
        iteration=jnp.zeros((), jnp.int32),
        broken=jnp.asarray(False),
    )
    end = jax.lax.while_loop(unfinished, advance, start)
    return norm * end.solution, norm * (unit - end.residual), jnp.sqrt(end.squared_residual)


def _norm(vector: Float[Array, "params"]) -> Float[Array, ""]:
    """Euclidean norm without overflow or underflow of the squares."""
    largest = jnp.max(jnp.abs(vector))
    return largest * jnp.linalg.norm(vector / jnp.where(largest == 0, 1, largest))
