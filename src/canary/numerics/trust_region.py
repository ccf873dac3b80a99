"""The trust-region problem (eq:practical-update) with the recovery tiers of eq:recovery, in closed
form.

    max g·s   subject to   c_B + b_B·s <= 0,   c_μ + b_μ·s <= 0,   ½ s'Hs <= δ

The solution lies in the span of H⁻¹g, H⁻¹b_B, H⁻¹b_μ, so the inner products q = g'H⁻¹g, r = b'H⁻¹g,
S = b'H⁻¹b, the values c and the radius δ decide everything (appendix "Closed-Form Solver"). The tier
follows from the reachable minima (eq:reachability): of c_μ + b_μ·s over the trust region, and of
c_B + b_B·s over the trust region cut by the mean half-space.

All algebra is dimensionless: unit vectors ĝ, b̂_i in the H⁻¹ metric, u = step / √(2δ) in the unit
ball, and excesses ĉ_i = c_i / κ_i with κ_i = √(2δ S_ii), the largest change of constraint i within
the trust region. ĉ_i > 1 is out of reach, ĉ_i < -1 cannot bind, and tiny or huge gradients need no
special case. Tier a enumerates active sets: for each set of constraints it computes the best step
with exactly these tight. The best feasible step is the optimum. Tiers b and c solve the same
problem with -b_B or -b_μ in place of g and fewer constraints.

A Gram matrix resolves angles only to about the square root of the rounding error ε. A direction with
a squared sine below ε^(2/3) is left out: below it, the error of using the direction exceeds the gain.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Float, Int

from canary.constraints import Tier

BOUND, MEAN = 0, 1

# If no step in the trust region removes this fraction of a constraint, its gradient is not used.
NEGLIGIBLE = 1e-6


class Problem(eqx.Module):
    """Maximise ĝ·u in the unit ball with ĉ_i + b̂_i·u <= 0. An absent vector and its cosines are
    zero."""

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
    violation: Float[Array, ""]  # largest ĉ_i + b̂_i·u of the others; inf if u does not exist
    kl_multiplier: Float[Array, ""]
    constraint_multipliers: Float[Array, "2"]


class TrustRegionSolution(eqx.Module):
    """The step s = Σ_i coefficients[i] · H⁻¹v_i with v = (g, b_1, ...), and the model's predictions
    for it. The multipliers satisfy v - Σ_i ν_i b_i = λ H s, where v is what the tier maximises: g,
    -b_B or -b_μ.
    """

    coefficients: Float[Array, "vectors"]
    tier: Int[Array, ""]
    predicted_objective: Float[Array, ""]
    predicted_values: Float[Array, "constraints"]
    kl_multiplier: Float[Array, ""]
    constraint_multipliers: Float[Array, "constraints"]


def solve(
    gram: Float[Array, "vectors vectors"], values: Float[Array, "constraints"], radius: ArrayLike
) -> TrustRegionSolution:
    """Solve the trust-region problem given by `gram`, the inner products of (g, b_1, ...) in the
    H⁻¹ metric.

    `values` holds the constraint values c: (bound, mean), or (bound,) alone, the problem of CPO,
    which has no mean-restoring tier. Non-finite input or a radius <= 0 gives `Tier.NO_STEP`.
    """
    constraints = values.shape[0]
    if constraints == 1:
        # A mean constraint that every step meets: value -1, zero gradient.
        gram, values = jnp.pad(gram, (0, 1)), jnp.pad(values, (0, 1), constant_values=-1)
    radius = jnp.asarray(radius, gram.dtype)
    usable = (
        jnp.all(jnp.isfinite(gram))
        & jnp.all(jnp.isfinite(values))
        & jnp.isfinite(radius)
        & (radius > 0)
    )
    reach = jnp.sqrt(2 * jnp.where(usable, radius, 1))
    problem, magnitudes, cosines = _normalise(
        jnp.where(usable, gram, 0), jnp.where(usable, values, 0), reach
    )
    tier, step = _select(problem)
    weights = jnp.where(usable, step.weights, 0)
    tier = jnp.where(jnp.any(weights != 0), tier, Tier.NO_STEP).astype(jnp.int32)

    inverse = jnp.where(magnitudes > 0, 1 / jnp.where(magnitudes > 0, magnitudes, 1), 0)
    changes = reach * magnitudes * (cosines @ weights)
    maximised = jnp.append(magnitudes, 0)[tier]
    multipliers = jnp.maximum(step.constraint_multipliers, 0) * maximised * inverse[1:]
    return TrustRegionSolution(
        coefficients=(reach * inverse * weights)[: 1 + constraints],
        tier=tier,
        predicted_objective=changes[0],
        predicted_values=(values + changes[1:])[:constraints],
        kl_multiplier=step.kl_multiplier * maximised / reach,
        constraint_multipliers=multipliers[:constraints],
    )


def _normalise(
    gram: Float[Array, "3 3"], values: Float[Array, "2"], reach: Float[Array, ""]
) -> tuple[Problem, Float[Array, "3"], Float[Array, "3 3"]]:
    """The dimensionless problem, the magnitudes √q, √S_11, √S_22, and the cosines of all vectors."""
    squares = jnp.diagonal(gram)
    present = squares >= jnp.finfo(gram.dtype).tiny
    magnitudes = jnp.sqrt(jnp.where(present, squares, 1))
    change = reach * magnitudes[1:]
    has_gradient = present[1:] & (change > NEGLIGIBLE * jnp.abs(values))
    ratio = values / jnp.where(has_gradient, change, 1)
    excess = jnp.where(has_gradient, jnp.clip(ratio, -2, 2), jnp.where(values > 0, 2, -2))
    present = present.at[1:].set(has_gradient)
    # Two divisions: the product of two magnitudes could overflow.
    cosines = jnp.clip((gram / 2 + gram.T / 2) / magnitudes[:, None] / magnitudes[None, :], -1, 1)
    cosines = jnp.where(present[:, None] & present[None, :], cosines, 0)
    problem = Problem(
        alignment=cosines[0, 1:],
        cosine=cosines[1, 2],
        excess=excess,
        has_objective=present[0],
        has_gradient=has_gradient,
    )
    return problem, jnp.where(present, magnitudes, 0), cosines


def _select(problem: Problem) -> tuple[Int[Array, ""], Candidate]:
    """The tier of eq:recovery and its step."""
    smallest, _ = _tolerances(problem.excess.dtype)
    bound_step, lowest_bound = _restore_bound(problem)
    mean_unreachable = problem.excess[MEAN] > 1 + smallest
    bound_unreachable = problem.excess[BOUND] + lowest_bound > smallest
    otherwise = jnp.where(bound_unreachable, Tier.BOUND_RESTORATION, Tier.NOMINAL)
    tier = jnp.where(mean_unreachable, Tier.MEAN_RESTORATION, otherwise)

    best, found = _maximise(problem)
    safe = jnp.all(problem.excess <= 0)
    # Restore if rounding leaves no candidate, or if there is no objective and not all is safe.
    usable = found & (problem.has_objective | safe)
    nominal = jax.tree.map(lambda first, second: jnp.where(usable, first, second), best, bound_step)
    options = [nominal, bound_step, _restore_mean(problem)]  # in the order of `Tier`
    return tier, jax.tree.map(lambda *leaves: jnp.stack(leaves)[tier], *options)


def _maximise(problem: Problem) -> tuple[Candidate, Bool[Array, ""]]:
    """The best feasible candidate, and whether there is any."""
    smallest, smallest_sine = _tolerances(problem.excess.dtype)
    alone = [_one_active(problem, active) for active in (BOUND, MEAN)]
    candidates = [_none_active(problem), *alone, _both_active(problem)]
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *candidates)
    # With parallel constraints, a step for one meets the other up to their angle.
    parallel = jnp.all(problem.has_gradient) & (_squared_sine(problem.cosine) <= smallest)
    settled = jnp.any(stacked.violation <= smallest)
    feasible = stacked.violation <= jnp.where(parallel & ~settled, 2 * smallest_sine, smallest)
    objective = jnp.where(feasible, stacked.objective, -jnp.inf)
    # If opposite constraints are both tight, several candidates are the same point: take the one
    # with valid multipliers.
    tied = objective >= jnp.max(objective) - 8 * jnp.finfo(objective.dtype).eps
    best = jnp.argmax(jnp.where(tied, stacked.constraint_multipliers.min(1), -jnp.inf))
    return jax.tree.map(lambda leaf: leaf[best], stacked), jnp.any(feasible)


def _restore_bound(problem: Problem) -> tuple[Candidate, Float[Array, ""]]:
    """Tier b: minimise b̂_B·u under the mean constraint alone; the step and the minimum."""
    restoration = Problem(
        alignment=jnp.array([0, -problem.cosine]),
        cosine=jnp.zeros_like(problem.cosine),
        # If the mean is out of reach, ĉ_μ = 1 stands for the point nearest to its half-space.
        excess=jnp.array([-2, jnp.minimum(problem.excess[MEAN], 1)]),
        has_objective=problem.has_gradient[BOUND],
        has_gradient=problem.has_gradient.at[BOUND].set(False),
    )
    best, _ = _maximise(restoration)
    along_bound, _, along_mean = best.weights
    return eqx.tree_at(
        lambda c: c.weights, best, jnp.array([0, -along_bound, along_mean])
    ), -best.objective


def _restore_mean(problem: Problem) -> Candidate:
    """Tier c: the lowest mean in the trust region, u = -b̂_μ."""
    step = _straight(1 + MEAN, problem.has_gradient[MEAN], problem.excess[MEAN] - 1)
    return eqx.tree_at(lambda c: c.weights, step, -step.weights)


def _tolerances(dtype: jnp.dtype) -> tuple[float, float]:
    """(ε^(2/3), ε^(1/3)): a smaller squared sine, or a smaller sine, counts as zero."""
    rounding = float(jnp.finfo(dtype).eps)
    return rounding ** (2 / 3), rounding ** (1 / 3)


def _none_active(problem: Problem) -> Candidate:
    """The natural-gradient step u = ĝ."""
    return _straight(0, problem.has_objective, jnp.max(problem.excess + problem.alignment))


def _straight(index: int, present: Bool[Array, ""], violation: Float[Array, ""]) -> Candidate:
    """The step to the edge of the ball along one vector; zero if the vector is absent."""
    length = present.astype(violation.dtype)
    weights = jnp.zeros(3, length.dtype).at[index].set(length)
    return Candidate(weights, length, violation, length, jnp.zeros(2, length.dtype))


def _one_active(problem: Problem, active: int) -> Candidate:
    """The step of CPO: b̂·u = -ĉ for the active constraint, and the rest of the ball for the
    objective."""
    smallest, _ = _tolerances(problem.excess.dtype)
    other = 1 - active
    excess, alignment = problem.excess[active], problem.alignment[active]
    available = _squared_sine(excess)
    free = problem.has_objective * _squared_sine(alignment)
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


def _both_active(problem: Problem) -> Candidate:
    """Both constraints tight: ν = S⁻¹(r + λc), with S⁻¹ by elimination to avoid cancellation."""
    smallest, _ = _tolerances(problem.excess.dtype)
    excess, alignment, cosine = problem.excess, problem.alignment, problem.cosine
    distinct = jnp.all(problem.has_gradient) & (_squared_sine(cosine) > smallest)
    apart = jnp.where(distinct, _squared_sine(cosine), 1)

    def invert(right: Float[Array, "2"]) -> Float[Array, "2"]:
        second = (right[1] - cosine * right[0]) / apart
        return jnp.array([right[0] - cosine * second, second])

    available = _squared_sine(excess[0]) - (excess[1] - cosine * excess[0]) ** 2 / apart
    # The squared part of ĝ outside the plane of b̂_B and b̂_μ, measured from the nearer one to keep
    # rounding small. The smaller the angle between the two, the larger the error of the plane.
    near, far = jnp.where(
        jnp.abs(alignment[0]) >= jnp.abs(alignment[1]), alignment, alignment[::-1]
    )
    outside = _squared_sine(near) - (far - cosine * near) ** 2 / apart
    blur = jnp.maximum(1, _squared_sine(near) / apart) ** (2 / 3)
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
    multiplier = sine / jnp.maximum(length, _tolerances(sine.dtype)[1])
    spent = length / sine, length * sine, multiplier
    weight, gain, multiplier = (jnp.where(degenerate, 0, number) for number in spent)
    return weight, gain, multiplier


def _squared_sine(cosine: Float[Array, ""]) -> Float[Array, ""]:
    return (1 - cosine) * (1 + cosine)
