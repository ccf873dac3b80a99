"""One constrained step of a policy within a trust region.

    maximise L(theta)  subject to  L_i(theta) <= 0 for each constraint i,  mean KL(theta, theta_k) <= delta

(paper eq. varcpo-constraint). The step linearises the surrogates (eq. practical-update),
preconditions their gradients with the curvature of the KL divergence, solves the small problem that
is left in closed form (appendix "Closed-Form Solver"), and searches backwards along the solution
until the surrogates themselves accept it.
"""

from dataclasses import dataclass

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from canary.algorithms.natural_gradient import NaturalGradients, curvature, natural_gradients
from canary.algorithms.reading import ReadingName
from canary.algorithms.surrogates import Levels, Parameters, Surrogates
from canary.networks import Policy, within_bounds
from canary.numerics.line_search import Candidate, LineSearchResult, acceptable, backtrack
from canary.numerics.tiers import Tier
from canary.numerics.trust_region import TrustRegionSolution, solve
from canary.values import Amount, Count, Positive, PositiveShare, Settings


@dataclass(frozen=True, kw_only=True)
class TrustRegionConfig(Settings):
    """Settings of the shared trust-region update."""

    target_kl: Positive = 0.01
    """Radius delta of the trust region: the largest mean KL divergence of one update."""
    damping: Amount = 0.1
    """Multiple of the identity added to the Fisher matrix."""
    cg_iterations: Count = 10
    """Most conjugate-gradient iterations for the natural gradients."""
    cg_tolerance: Amount = 1e-5
    """Conjugate gradient also stops at this residual, relative to the gradient."""
    backtracks: Count = 10
    """Attempts of the line search."""
    shrink: PositiveShare = 0.8
    """Factor between two attempts."""
    reading: ReadingName = "equations"
    """`equations`: as the paper's equations say. `authors`: as its authors' public code does, which
    comes near the published table."""


class Linearised(eqx.Module):
    """The surrogates at theta_k and their gradients (g, b_1, ...)."""

    theta: Parameters
    levels: Levels
    gradients: Float[Array, "vector params"]


class StepResult(eqx.Module):
    """Everything about one step, for whoever wants to report on it."""

    linear: Linearised
    natural: NaturalGradients
    solution: TrustRegionSolution
    tier: Int[Array, ""]
    search: LineSearchResult[Candidate]


def trust_region_step(
    surrogates: Surrogates, ready: Bool[Array, ""], config: TrustRegionConfig
) -> tuple[Policy, StepResult]:
    """The policy after one constrained step; the same policy if there is nothing safe to do, or if
    it is not `ready`."""
    linear = linearise(surrogates)
    natural = precondition(surrogates, linear, config)
    solution = solve(natural.gram, linear.levels.constraints, config.target_kl)
    tier = jnp.where(ready, solution.tier, Tier.NO_STEP)
    found = search(surrogates, linear, solution.coefficients @ natural.directions, tier, config)
    policy = within_bounds(surrogates.policy_at(found.point))
    return policy, StepResult(linear, natural, solution, tier, found)


def linearise(surrogates: Surrogates) -> Linearised:
    """Values c_i and gradients g, b_i at theta_k (eqs. taylor-c, taylor-b, taylor-cmu)."""
    theta = surrogates.parameters()
    return Linearised(theta, *surrogates.gradients(theta))


def precondition(
    surrogates: Surrogates, linear: Linearised, config: TrustRegionConfig
) -> NaturalGradients:
    """H^-1 g and H^-1 b_i, and the Gram matrix that the closed-form solver works with."""
    product = curvature(surrogates, linear.theta, config.damping)
    return natural_gradients(
        product, linear.gradients, iterations=config.cg_iterations, tolerance=config.cg_tolerance
    )


def search(
    surrogates: Surrogates,
    linear: Linearised,
    step: Parameters,
    tier: Int[Array, ""],
    config: TrustRegionConfig,
) -> LineSearchResult[Candidate]:
    """The first point on the way back from theta_k + step that the surrogates themselves accept."""

    def evaluate(theta: Parameters) -> Candidate:
        levels = surrogates(theta)
        changes = levels.constraints - linear.levels.constraints
        return Candidate(levels.reward - linear.levels.reward, changes, levels.kl)

    def accept(candidate: Candidate) -> Bool[Array, ""]:
        return acceptable(
            candidate, tier=tier, values=linear.levels.constraints, radius=config.target_kl
        )

    return backtrack(
        evaluate, accept, linear.theta, step, shrink=config.shrink, attempts=config.backtracks
    )
