"""One constrained step of a policy within a trust region.

    maximise L(theta)  subject to  L_i(theta) <= 0 for each constraint i,  mean KL(theta, theta_k) <= delta

(paper eq. varcpo-constraint) with the surrogates of one batch, and
ratio_t = pi_theta(a_t | x_t) / pi_k(a_t | x_t):

    L(theta)   = mean_t[ ratio_t A_t ]                for the reward
    Z(theta)   = scale * mean_t[ g_t ratio_t A^i_t ]  for each cost signal i
    L_i(theta) = bound_i(Z(theta))                    for each constraint

The step linearises the surrogates (eq. practical-update), preconditions their gradients with the
curvature H of the KL divergence, and solves the remaining small problem in closed form (appendix
"Closed-Form Solver"). The solution is that of a model, so a line search tests the surrogates, as in
CPO: it takes the first of theta_k + shrink^j s, j = 0, 1, ..., that meets the conditions below.
They depend on the tier of eq:recovery that produced the step s. With c the constraints at theta_k
and D the changes from there:

| tier                     | reward | constraints                              |
|--------------------------|--------|------------------------------------------|
| nominal, every c_i < 0   | D >= 0 | D_i <= -c_i for each i: stay feasible    |
| nominal, some c_i >= 0   | free   | D_i <= max(-c_i, 0) for each i           |
| bound restoration        | free   | D_B <= 0 and D_mu <= max(-c_mu, 0)       |
| mean restoration         | free   | D_mu <= 0                                |

In every row all numbers must be finite and the mean KL divergence must be within the radius.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Float, Int, Shaped

from canary.algorithms.inputs import Inputs
from canary.constraints import Tier
from canary.networks import Distribution, Policy, within_bounds
from canary.numerics.conjugate_gradient import Product, conjugate_gradient
from canary.numerics.trust_region import solve
from canary.types import Metrics
from canary.values import Amount, Count, Positive, PositiveShare, Settings

Parameters = Float[Array, "params"]
Bound = Callable[[Float[Array, "signal"]], Float[Array, "constraint"]]
"""Maps the surrogate changes Z of the signals to the surrogates L_i; <= 0 is safe."""


@dataclass(frozen=True, kw_only=True)
class TrustRegionConfig(Settings):
    """Settings of the shared trust-region update."""

    target_kl: Positive = 0.01
    """Radius delta of the trust region: the largest mean KL divergence of one update."""
    damping: Amount = 0.1
    """Multiple of the identity that is added to the Fisher matrix."""
    cg_iterations: Count = 10
    """Largest number of conjugate-gradient iterations for a natural gradient."""
    cg_tolerance: Amount = 1e-5
    """Residual, relative to the gradient, at which conjugate gradient stops early."""
    backtracks: Count = 10
    """Largest number of attempts of the line search."""
    shrink: PositiveShare = 0.8
    """Length of an attempt, as a multiple of the previous one."""
    reading: Literal["equations", "authors"] = "equations"
    """`equations`: the paper's equations. `authors`: also details of the authors' public code,
    which come near the published table."""

    @property
    def as_authors(self) -> bool:
        """Whether to follow the authors' code where it differs from the equations
        (docs/readings.md)."""
        return self.reading == "authors"


class Samples(eqx.Module):
    """A flattened batch for the policy update."""

    action: Shaped[Array, "sample ..."]
    reward_advantage: Float[Array, "sample"]
    cost_advantages: Float[Array, "signal sample"]
    """Centred advantages of the signals in the constraints."""
    weight: Float[Array, "sample"]
    """Weight g_t of each step in the constraints."""


class Levels(eqx.Module):
    """All surrogates at one theta."""

    reward: Float[Array, ""]
    constraints: Float[Array, "constraint"]
    """(bound, mean), or the bound alone."""
    kl: Float[Array, ""]
    """KL divergence from the old policy: the larger of its mean over the batch and its mean
    weighted with g_t, as in the paper's theorem."""


@dataclass(frozen=True)
class Surrogates:
    """The surrogates of a batch, at any theta."""

    policy: Policy
    """pi_k, which collected the batch."""
    inputs: Inputs
    old: Distribution
    """Action distribution of pi_k on the inputs."""
    samples: Samples
    bound: Bound
    scale: Float[Array, ""]

    def parameters(self) -> Parameters:
        return ravel_pytree(self.policy)[0]

    def policy_at(self, theta: Parameters) -> Policy:
        return ravel_pytree(self.policy)[1](theta)

    def __call__(self, theta: Parameters) -> Levels:
        new, old, samples = self.inputs.evaluate(self.policy_at(theta)), self.old, self.samples
        ratio = jnp.exp(new.log_prob(samples.action) - old.log_prob(samples.action))
        change = self.scale * (samples.cost_advantages * samples.weight * ratio).mean(1)
        kl = new.kl_from(old)
        discounted = (kl * samples.weight).mean() / samples.weight.mean()
        return Levels(
            reward=(ratio * samples.reward_advantage).mean(),
            constraints=self.bound(change),
            kl=jnp.maximum(kl.mean(), discounted),
        )

    def gradients(self, theta: Parameters) -> tuple[Levels, Float[Array, "vector params"]]:
        """The surrogates at theta, and the gradients (g, b_1, ...) of reward and constraints."""

        def stacked(theta: Parameters) -> tuple[Float[Array, "vector"], Levels]:
            levels = self(theta)
            return jnp.append(levels.reward, levels.constraints), levels

        values, pullback, levels = jax.vjp(stacked, theta, has_aux=True)
        return levels, jax.vmap(lambda row: pullback(row)[0])(jnp.eye(values.shape[0]))


class Found(eqx.Module):
    """Result of the line search. If no point was accepted, `theta` is the start, bit for bit."""

    theta: Parameters
    accepted: Bool[Array, ""]
    attempts: Int[Array, ""]
    levels: Levels
    """The surrogates at the last attempt."""


class Step(eqx.Module):
    """Record of one step."""

    before: Levels
    gram: Float[Array, "vector vector"]
    """Inner products of the gradients (g, b_1, ...) in the H^-1 metric."""
    residual: Float[Array, ""]
    """Largest relative residual of the conjugate gradients."""
    tier: Int[Array, ""]
    found: Found


def trust_region_step(
    surrogates: Surrogates, ready: Bool[Array, ""], config: TrustRegionConfig
) -> tuple[Policy, Step]:
    """The policy after one constrained step; unchanged if none is acceptable, or if not `ready`."""
    theta = surrogates.parameters()
    before, gradients = surrogates.gradients(theta)  # eqs. taylor-c, taylor-b, taylor-cmu
    product = curvature(surrogates, theta, config.damping)
    directions, gram, residual = natural_gradients(product, gradients, config)
    solution = solve(gram, before.constraints, config.target_kl)
    tier = jnp.where(ready, solution.tier, Tier.NO_STEP)
    step = solution.coefficients @ directions
    found = search(surrogates, theta, before, step, tier, config)
    return within_bounds(surrogates.policy_at(found.theta)), Step(
        before, gram, residual, tier, found
    )


def natural_gradients(
    product: Product, gradients: Float[Array, "vector params"], config: TrustRegionConfig
) -> tuple[Float[Array, "vector params"], Float[Array, "vector vector"], Float[Array, ""]]:
    """H^-1 v of every gradient v, the inner products of the v in the H^-1 metric, and the largest
    residual. One batched product serves every gradient."""
    directions, images, residuals = jax.vmap(
        lambda v: conjugate_gradient(
            product, v, iterations=config.cg_iterations, tolerance=config.cg_tolerance
        )
    )(gradients)
    gram = directions @ images.T
    return directions, 0.5 * (gram + gram.T), residuals.max()


def curvature(surrogates: Surrogates, theta: Parameters, damping: float) -> Product:
    """v -> H v.

    Two means of the KL divergence are bounded, with weights 1 and g_t / mean(g). A state's weight
    in H is the mean of the two.
    """
    inputs, weight = surrogates.inputs, surrogates.samples.weight
    weights = inputs.row_weights(0.5 * (1 + weight / weight.mean()))
    return fisher_product(
        lambda theta: surrogates.policy_at(theta)(inputs.rows), theta, weights, damping
    )


def fisher_product(
    distribution: Callable[[Parameters], Distribution],
    theta: Parameters,
    weights: Float[Array, "row"],
    damping: float,
) -> Product:
    """v -> (J' M J + damping) v, with M the Hessian of the mean KL in the parameters of the action
    distribution and J the Jacobian of the network, which is linearised once."""
    old, push = jax.linearize(distribution, theta)
    pull = jax.linear_transpose(push, theta)

    def mean_kl(new: Distribution) -> Float[Array, ""]:
        return new.kl_from(old) @ weights

    def product(vector: Parameters) -> Parameters:
        _, curved = jax.jvp(jax.grad(mean_kl), (old,), (push(vector),))
        return pull(curved)[0] + damping * vector

    return product


def search(
    surrogates: Callable[[Parameters], Levels],
    start: Parameters,
    before: Levels,
    step: Parameters,
    tier: Int[Array, ""],
    config: TrustRegionConfig,
) -> Found:
    """The first of start + shrink^j * step, 0 <= j < backtracks, that is `acceptable`; else the
    start."""

    def trial(index: Int[Array, ""]) -> Parameters:
        return start + jnp.asarray(config.shrink, step.dtype) ** index * step

    def unfinished(state: tuple) -> Bool[Array, ""]:
        index, accepted, _ = state
        return ~accepted & (index < config.backtracks)

    def attempt(state: tuple) -> tuple:
        index, _, _ = state
        levels = surrogates(trial(index))
        return index + 1, acceptable(levels, before, tier, config.target_kl), levels

    nothing = jax.tree.map(jnp.zeros_like, before)
    used, accepted, levels = jax.lax.while_loop(
        unfinished, attempt, (jnp.zeros((), jnp.int32), jnp.asarray(False), nothing)
    )
    return Found(jnp.where(accepted, trial(used - 1), start), accepted, used, levels)


def acceptable(
    levels: Levels, before: Levels, tier: Int[Array, ""], radius: ArrayLike
) -> Bool[Array, ""]:
    """Whether the point with these levels meets the conditions of its tier."""
    gain = levels.reward - before.reward
    changes = levels.constraints - before.constraints
    within_slack = changes <= jnp.maximum(-before.constraints, 0)
    started_feasible = jnp.all(before.constraints < 0)
    by_tier = {
        Tier.NOMINAL: jnp.all(within_slack) & (~started_feasible | (gain >= 0)),
        Tier.BOUND_RESTORATION: (changes[0] <= 0) & jnp.all(within_slack[1:]),
        Tier.MEAN_RESTORATION: changes[-1] <= 0,
        Tier.NO_STEP: jnp.asarray(False),
    }
    finite = jnp.isfinite(gain) & jnp.all(jnp.isfinite(changes)) & jnp.isfinite(levels.kl)
    return jnp.stack([by_tier[each] for each in Tier])[tier] & finite & (levels.kl <= radius)


def step_metrics(surrogates: Surrogates, step: Step, config: TrustRegionConfig) -> Metrics:
    """Metrics of the step."""
    found, gram, start = step.found, step.gram, step.before.constraints[0]
    kl = jnp.where(found.accepted, found.levels.kl, 0.0)
    return {
        "tier": step.tier.astype(jnp.float32),
        "accepted": found.accepted.astype(jnp.float32),
        "backtracks": found.attempts.astype(jnp.float32),
        "kl": kl,
        "kl_fraction": kl / config.target_kl,
        "entropy": surrogates.old.entropy().mean(),
        "exploration": surrogates.old.exploration(),
        "gradient_cosine": gram[0, 1] / jnp.sqrt(jnp.maximum(gram[0, 0] * gram[1, 1], 1e-30)),
        "cg_residual": step.residual,
        "bound_value": start,
        "bound_surrogate_change": jnp.where(
            found.accepted, found.levels.constraints[0] - start, 0.0
        ),
    }


def largest_advantage(surrogates: Surrogates, new: Policy) -> Float[Array, ""]:
    """max over the batch of |ratio A| of the first signal: an estimate of the theorem's alpha =
    max_x |E_{a ~ new} A(x, a)|, which `canary.exact.worst_case` computes exactly."""
    samples = surrogates.samples
    log_prob = surrogates.inputs.evaluate(new).log_prob(samples.action)
    ratio = jnp.exp(log_prob - surrogates.old.log_prob(samples.action))
    return jnp.abs(ratio * samples.cost_advantages[0]).max()
