"""The trust-region problem (eq:practical-update) with the recovery tiers of eq:recovery, in closed
form.

    max g·s   subject to   c_B + b_B·s <= 0,   c_μ + b_μ·s <= 0,   ½ s'Hs <= δ

lies in the span of H⁻¹g, H⁻¹b_B, H⁻¹b_μ, so the inner products q = g'H⁻¹g, r = b'H⁻¹g, S = b'H⁻¹b,
the values c and the radius δ decide everything (appendix "Closed-Form Solver"). The tier follows
from the reachable minima (eq:reachability), here in excess of their limits: m_μ of c_μ + b_μ·s over
the trust region, and m_B of c_B + b_B·s over the trust region cut by the mean half-space.

All algebra is dimensionless: unit vectors ĝ, b̂_i in the H⁻¹ metric, u = step / √(2δ) in the unit
ball, and ĉ_i = c_i / κ_i with κ_i = √(2δ S_ii), the largest change of constraint i that the trust
region allows: beyond 1 it is out of reach, below -1 it cannot bind, and tiny or huge gradients are
no special case. Tier a enumerates active sets: the optimum is the best feasible one among their
maximisers. Tiers b and c are the same problem with -b_B or -b_μ in the place of g and fewer
constraints.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Float, Int

from canary.numerics.active_sets import (
    Candidate,
    Problem,
    both_active,
    none_active,
    one_active,
    squared_sine,
    straight,
    tolerances,
)
from canary.numerics.tiers import Tier

BOUND, MEAN = 0, 1

# A constraint of which a whole trust region removes less than this fraction has no usable gradient.
NEGLIGIBLE = 1e-6


class TrustRegionSolution(eqx.Module):
    """The step s = Σ_i coefficients[i] · H⁻¹v_i with v = (g, b_1, ...), and what the model predicts
    of it.

    `reachable_mean` (m_μ) and `reachable_bound` (m_B) are excesses: <= 0 means reachable. Where the
    mean is out of reach there is no m_B, and the bound's value at the mean-restoring step stands
    in. The multipliers satisfy v - Σ_i ν_i b_i = λ H s, where v is what the tier maximises: g, -b_B
    or -b_μ.
    """

    coefficients: Float[Array, "vectors"]
    tier: Int[Array, ""]
    predicted_objective: Float[Array, ""]
    predicted_values: Float[Array, "constraints"]
    reachable_mean: Float[Array, ""]
    reachable_bound: Float[Array, ""]
    kl_multiplier: Float[Array, ""]
    constraint_multipliers: Float[Array, "constraints"]


def solve(
    gram: Float[Array, "vectors vectors"], values: Float[Array, "constraints"], radius: ArrayLike
) -> TrustRegionSolution:
    """Solve the trust-region problem given by `gram`, the inner products of (g, b_1, ...) in the
    H⁻¹ metric.

    `values` holds the constraint values c: (bound, mean), or (bound,) alone, which is the problem
    of CPO and has no mean-restoring tier. Non-finite input, or a radius that is not positive, gives
    `Tier.NO_STEP`.
    """
    constraints = values.shape[0]
    if constraints == 1:
        # A mean constraint that holds whatever the step: value -1, zero gradient.
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
    tier, step, bound_change = _select(problem)
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
        reachable_mean=values[MEAN] - reach * magnitudes[1 + MEAN],
        reachable_bound=values[BOUND] + reach * magnitudes[1 + BOUND] * bound_change,
        kl_multiplier=step.kl_multiplier * maximised / reach,
        constraint_multipliers=multipliers[:constraints],
    )


def _normalise(
    gram: Float[Array, "3 3"], values: Float[Array, "2"], reach: Float[Array, ""]
) -> tuple[Problem, Float[Array, "3"], Float[Array, "3 3"]]:
    """The dimensionless problem; the magnitudes √q, √S_11, √S_22 and the cosines of all vectors."""
    squares = jnp.diagonal(gram)
    present = squares >= jnp.finfo(gram.dtype).tiny
    magnitudes = jnp.sqrt(jnp.where(present, squares, 1))
    change = reach * magnitudes[1:]
    has_gradient = present[1:] & (change > NEGLIGIBLE * jnp.abs(values))
    ratio = values / jnp.where(has_gradient, change, 1)
    excess = jnp.where(has_gradient, jnp.clip(ratio, -2, 2), jnp.where(values > 0, 2, -2))
    present = present.at[1:].set(has_gradient)
    # Divided one after the other: the product of two magnitudes could overflow.
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


def _select(problem: Problem) -> tuple[Int[Array, ""], Candidate, Float[Array, ""]]:
    """The tier of eq:recovery, its step, and the largest decrease of b̂_B·u under the mean
    constraint."""
    smallest, _ = tolerances(problem.excess.dtype)
    bound_step, bound_change = _restore_bound(problem)
    mean_unreachable = problem.excess[MEAN] > 1 + smallest
    bound_unreachable = problem.excess[BOUND] + bound_change > smallest
    otherwise = jnp.where(bound_unreachable, Tier.BOUND_RESTORATION, Tier.NOMINAL)
    tier = jnp.where(mean_unreachable, Tier.MEAN_RESTORATION, otherwise)

    best, found = _maximise(problem)
    safe = jnp.all(problem.excess <= 0)
    # Rounding may leave no candidate, and without objective every feasible step is as good: then
    # restore.
    usable = found & (problem.has_objective | safe)
    nominal = jax.tree.map(lambda first, second: jnp.where(usable, first, second), best, bound_step)
    options = [nominal, bound_step, _restore_mean(problem)]  # in the order of `Tier`
    return tier, jax.tree.map(lambda *leaves: jnp.stack(leaves)[tier], *options), bound_change


def _maximise(problem: Problem) -> tuple[Candidate, Bool[Array, ""]]:
    """The best feasible candidate, and whether there is any."""
    smallest, smallest_sine = tolerances(problem.excess.dtype)
    alone = [one_active(problem, active) for active in (BOUND, MEAN)]
    candidates = [none_active(problem), *alone, both_active(problem)]
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *candidates)
    # Parallel constraints are not tried together: each alone meets the other up to their angle.
    parallel = jnp.all(problem.has_gradient) & (squared_sine(problem.cosine) <= smallest)
    settled = jnp.any(stacked.violation <= smallest)
    feasible = stacked.violation <= jnp.where(parallel & ~settled, 2 * smallest_sine, smallest)
    objective = jnp.where(feasible, stacked.objective, -jnp.inf)
    # Opposite constraints that are both tight leave one point for several candidates: take the one
    # whose multipliers hold.
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
    step = straight(1 + MEAN, problem.has_gradient[MEAN], problem.excess[MEAN] - 1)
    return eqx.tree_at(lambda c: c.weights, step, -step.weights)
