"""The points that can solve a trust-region problem: for each set of constraints that may be tight,
the best step with exactly these tight (appendix "Closed-Form Solver").

All algebra is dimensionless, in the unit ball of the H⁻¹ metric (`trust_region`): a point is
u = step / √(2δ), an excess ĉ_i = c_i / κ_i with κ_i = √(2δ S_ii).

A Gram matrix resolves angles only to about the square root of the rounding error ε. Below a squared
sine of ε^(2/3), where the error of using a nearly degenerate direction equals the gain from using
it, that direction is left out.
"""

import equinox as eqx
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Float


class Problem(eqx.Module):
    """Maximise ĝ·u in the unit ball with ĉ_i + b̂_i·u <= 0. An absent vector is zero, so are its
    cosines."""

    alignment: Float[Array, "2"]  # cosines of ĝ with b̂_B, b̂_μ
    cosine: Float[Array, ""]  # of b̂_B with b̂_μ
    excess: Float[Array, "2"]  # ĉ, clipped to [-2, 2]: beyond ±1 only the sign matters
    has_objective: Bool[Array, ""]
    has_gradient: Bool[Array, "2"]


class Candidate(eqx.Module):
    """The point u = Σ_i weights[i] · (ĝ, b̂_B, b̂_μ)[i], and the multipliers it would have as an
    optimum."""

    weights: Float[Array, "3"]
    objective: Float[Array, ""]
    violation: Float[Array, ""]  # largest ĉ_i + b̂_i·u of the others; inf if there is no such point
    kl_multiplier: Float[Array, ""]
    constraint_multipliers: Float[Array, "2"]


def tolerances(dtype: jnp.dtype) -> tuple[float, float]:
    """(ε^(2/3), ε^(1/3)): the smallest squared sine, and the smallest sine, that do not count as
    zero."""
    rounding = float(jnp.finfo(dtype).eps)
    return rounding ** (2 / 3), rounding ** (1 / 3)


def none_active(problem: Problem) -> Candidate:
    """The natural-gradient step u = ĝ."""
    return straight(0, problem.has_objective, jnp.max(problem.excess + problem.alignment))


def straight(index: int, present: Bool[Array, ""], violation: Float[Array, ""]) -> Candidate:
    """All of the ball spent along one vector, if it is there."""
    length = present.astype(violation.dtype)
    weights = jnp.zeros(3, length.dtype).at[index].set(length)
    return Candidate(weights, length, violation, length, jnp.zeros(2, length.dtype))


def one_active(problem: Problem, active: int) -> Candidate:
    """The step of CPO: b̂·u = -ĉ for the active constraint, the rest of the ball spent on the
    objective."""
    smallest, _ = tolerances(problem.excess.dtype)
    other = 1 - active
    excess, alignment = problem.excess[active], problem.alignment[active]
    available = squared_sine(excess)
    free = problem.has_objective * squared_sine(alignment)
    weight, gain, multiplier = _spend(available, free, smallest)
    other_change = (
        weight * (problem.alignment[other] - alignment * problem.cosine) - excess * problem.cosine
    )
    exists = problem.has_gradient[active] & (available >= -smallest)
    zeros = jnp.zeros(2, problem.excess.dtype)
    return Candidate(
        weights=jnp.append(weight, zeros.at[active].set(-excess - weight * alignment)),
        objective=gain - excess * alignment,
        violation=jnp.where(exists, problem.excess[other] + other_change, jnp.inf),
        kl_multiplier=multiplier,
        constraint_multipliers=zeros.at[active].set(alignment + multiplier * excess),
    )


def both_active(problem: Problem) -> Candidate:
    """Both constraints tight: ν = S⁻¹(r + λc), S⁻¹ by elimination so that nothing cancels."""
    smallest, _ = tolerances(problem.excess.dtype)
    excess, alignment, cosine = problem.excess, problem.alignment, problem.cosine
    distinct = jnp.all(problem.has_gradient) & (squared_sine(cosine) > smallest)
    apart = jnp.where(distinct, squared_sine(cosine), 1)

    def invert(right: Float[Array, "2"]) -> Float[Array, "2"]:
        second = (right[1] - cosine * right[0]) / apart
        return jnp.array([right[0] - cosine * second, second])

    available = squared_sine(excess[0]) - (excess[1] - cosine * excess[0]) ** 2 / apart
    # What of ĝ lies outside the plane of b̂_B and b̂_μ, seen from the nearer of them to keep the
    # rounding small; the plane itself is the more blurred the smaller the angle between the two.
    near, far = jnp.where(
        jnp.abs(alignment[0]) >= jnp.abs(alignment[1]), alignment, alignment[::-1]
    )
    outside = squared_sine(near) - (far - cosine * near) ** 2 / apart
    blur = jnp.maximum(1, squared_sine(near) / apart) ** (2 / 3)
    weight, gain, multiplier = _spend(available, problem.has_objective * outside, smallest * blur)
    return Candidate(
        weights=jnp.append(weight, invert(-excess - weight * alignment)),
        objective=gain - excess @ invert(alignment),
        violation=jnp.where(distinct & (available >= -smallest), 0, jnp.inf),
        kl_multiplier=multiplier,
        constraint_multipliers=invert(alignment + multiplier * excess),
    )


def _spend(
    available: Float[Array, ""], free: Float[Array, ""], smallest: ArrayLike
) -> tuple[Array, Array, Array]:
    """Move along the part of the objective that the active constraints leave free, to the edge of
    the ball.

    `available` is 1 - |u|² before the move and `free` the squared length of that part. Returns the
    weight of the objective vector, the gain, and λ = √(free / available), kept finite where nothing
    is available.
    """
    degenerate = free <= smallest
    sine = jnp.sqrt(jnp.where(degenerate, 1, free))
    length = jnp.sqrt(jnp.maximum(available, 0))
    multiplier = sine / jnp.maximum(length, tolerances(sine.dtype)[1])
    spent = length / sine, length * sine, multiplier
    weight, gain, multiplier = (jnp.where(degenerate, 0, number) for number in spent)
    return weight, gain, multiplier


def squared_sine(cosine: Float[Array, ""]) -> Float[Array, ""]:
    return (1 - cosine) * (1 + cosine)
