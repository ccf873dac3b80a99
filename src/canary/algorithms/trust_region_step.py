"""One constrained step of a policy within a trust region.

    maximise L(theta)  subject to  L_i(theta) <= 0 for each constraint i,  mean KL(theta, theta_k) <= delta

(paper eq. varcpo-constraint). The step linearises the surrogates (eq. practical-update),
preconditions their gradients with the curvature of the KL divergence, solves the small problem that
is left in closed form (appendix "Closed-Form Solver"), and searches backwards along the solution
until the surrogates themselves accept it.
"""

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Float, Int

from canary.algorithms.natural_gradient import NaturalGradients, curvature, natural_gradients
from canary.algorithms.surrogates import Levels, Parameters, Surrogates
from canary.networks import Policy, within_bounds
from canary.numerics.line_search import Candidate, LineSearchResult, acceptable, backtrack
from canary.numerics.tiers import Tier
from canary.numerics.trust_region import TrustRegionSolution, solve_with_share
from canary.types import Amount, Count, Positive, PositiveShare, Whole

ALL_LOST = 3.0  # times the tolerated loss: beyond, restoring steps go for the reward alone


@dataclass(frozen=True, kw_only=True)
class TrustRegionConfig:
    """Settings of the shared trust-region update."""

    target_kl: Positive = 0.01
    """Radius delta of the trust region: the largest mean KL divergence of one update."""
    target_kl_end: Positive | None = None
    """The radius at the end of the run, if it is another one. Steps whose length never falls keep
    wandering with the noise of their gradients."""
    target_kl_path: Literal["linear", "geometric"] = "linear"
    """How the radius gets there. `geometric`, by the same factor with every update, leaves more of
    the run to short steps: right where what is learnt late is not how to earn but how to be
    safe."""
    damping: Amount = 0.1
    """Multiple of the identity added to the Fisher matrix. Directions of less curvature than this
    are followed less: they are where a sampled gradient is mostly noise."""
    fisher_states: Whole = 0
    """The Fisher matrix is the mean over at most so many states of the batch; 0: over all of
    them."""
    cg_iterations: Count = 10
    """Most conjugate-gradient iterations for the natural gradients."""
    cg_tolerance: Amount = 1e-5
    """Conjugate gradient also stops at this residual, relative to the gradient."""
    backtracks: Count = 10
    """Attempts of the line search."""
    shrink: PositiveShare = 0.8
    """Factor between two attempts."""
    surrogate_scale: Literal["episode", "step", "signal"] = "episode"
    """Units of the constraint surrogates. `episode`: per-step mean times mean episode length, the
    paper's equation, of which the noise of a sampled gradient promises too much. `signal`: those
    times the share of the gradient that is signal, so that a step does what was promised of it.
    `step`: the per-step mean alone, as if one step in an episode were signal."""
    entropy: Amount = 0.0
    """Weight of the entropy in the reward surrogate at the start; it falls to zero over the run. A
    discrete policy that is nearly deterministic early has no gradient left that leads elsewhere."""
    exploration: Amount = 0.0
    """Price of lost coverage (the mean log-probability of all actions) in the first constraint
    while that is violated, in standard deviations of its advantage; it falls to zero over the first
    third of the run. Actions that look bad at first would otherwise never be tried again, and some
    constraints can only be met with them."""
    restoration_share: PositiveShare = 1.0
    """How much of what one step can restore it is asked to restore, at the most. 1, the paper's: a
    step that cannot meet its constraint does nothing else than restore it. 0.98 leaves sqrt(1 -
    0.98^2), a fifth of the step's length, to the reward."""
    tolerated_loss: Positive | None = None
    """Share of its best mean return that a policy may lose while it restores its constraint. Beyond
    it restoring steps turn further towards the reward, at three times as much entirely. None: they
    never do."""

    def radius(self, progress: ArrayLike) -> Float[Array, ""]:
        """delta when this share of the run is over."""
        end = self.target_kl if self.target_kl_end is None else self.target_kl_end
        progress = jnp.asarray(progress, float)
        if self.target_kl_path == "geometric":
            return self.target_kl * (end / self.target_kl) ** progress
        return self.target_kl + (end - self.target_kl) * progress

    def price(self, progress: ArrayLike) -> Float[Array, ""]:
        """Of lost coverage, when this share of the run is over."""
        return self.exploration * jnp.maximum(1 - 3 * jnp.asarray(progress, float), 0)

    def share(self, lost: Float[Array, ""]) -> ArrayLike:
        """The share of its reach that a step restores, when so much of the best return is lost: the
        cosine of the angle between the step and a purely restoring one."""
        if self.tolerated_loss is None:
            return self.restoration_share
        need = jnp.clip((lost / self.tolerated_loss - 1) / (ALL_LOST - 1), 0, 1)
        angle = math.acos(self.restoration_share)
        return jnp.cos(angle + need * (math.pi / 2 - angle))


class Linearised(eqx.Module):
    """The surrogates at theta_k and their gradients (g, b_1, ...)."""

    theta: Parameters
    levels: Levels
    gradients: Float[Array, "vector params"]


class Aim(NamedTuple):
    """How far a step goes, and how much of it may restore."""

    radius: Float[Array, ""]
    share: ArrayLike


class StepResult(eqx.Module):
    """Everything about one step, for whoever wants to report on it."""

    linear: Linearised
    natural: NaturalGradients
    solution: TrustRegionSolution
    tier: Int[Array, ""]
    radius: Float[Array, ""]
    search: LineSearchResult[Candidate]


def trust_region_step(
    surrogates: Surrogates, aim: Aim, ready: Bool[Array, ""], config: TrustRegionConfig
) -> tuple[Policy, StepResult]:
    """The policy after one constrained step; the same policy if there is nothing safe to do, or if
    it is not `ready`."""
    linear = linearise(surrogates)
    natural = precondition(surrogates, linear, config)
    solution = solve_with_share(natural.gram, linear.levels.constraints, aim.radius, aim.share)
    tier = jnp.where(ready, solution.tier, Tier.NO_STEP)
    found = search(
        surrogates, linear, solution.coefficients @ natural.directions, tier, aim.radius, config
    )
    policy = within_bounds(surrogates.policy_at(found.point))
    return policy, StepResult(linear, natural, solution, tier, aim.radius, found)


def linearise(surrogates: Surrogates) -> Linearised:
    """Values c_i and gradients g, b_i at theta_k (eqs. taylor-c, taylor-b, taylor-cmu)."""
    theta = surrogates.parameters()
    return Linearised(theta, *surrogates.gradients(theta))


def precondition(
    surrogates: Surrogates, linear: Linearised, config: TrustRegionConfig
) -> NaturalGradients:
    """H^-1 g and H^-1 b_i, and the Gram matrix that the closed-form solver works with."""
    product = curvature(surrogates, linear.theta, config.fisher_states, config.damping)
    return natural_gradients(
        product, linear.gradients, iterations=config.cg_iterations, tolerance=config.cg_tolerance
    )


def search(
    surrogates: Surrogates,
    linear: Linearised,
    step: Parameters,
    tier: Int[Array, ""],
    radius: Float[Array, ""],
    config: TrustRegionConfig,
) -> LineSearchResult[Candidate]:
    """The first point on the way back from theta_k + step that the surrogates themselves accept."""

    def evaluate(theta: Parameters) -> Candidate:
        levels = surrogates(theta)
        changes = levels.constraints - linear.levels.constraints
        return Candidate(levels.reward - linear.levels.reward, changes, levels.kl)

    def accept(candidate: Candidate) -> Bool[Array, ""]:
        return acceptable(candidate, tier=tier, values=linear.levels.constraints, radius=radius)

    return backtrack(
        evaluate, accept, linear.theta, step, shrink=config.shrink, attempts=config.backtracks
    )
