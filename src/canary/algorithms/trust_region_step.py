"""One constrained step of a policy within a trust region.

    maximise L(theta)  subject to  L_i(theta) <= 0 for each constraint i,  mean KL(theta, theta_k) <= delta

with L and L_i the importance-weighted surrogates of the reward return and of the constraints (paper eq. varcpo-constraint).
The problem is linearised (eq. practical-update), solved in closed form by tiers (appendix "Closed-Form Solver"), and the
step is backtracked until the surrogates themselves accept it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Float, Shaped

from canary.algorithms.inputs import Inputs
from canary.networks import Distribution, Policy
from canary.numerics.conjugate_gradient import conjugate_gradient
from canary.numerics.line_search import Candidate, acceptable, backtrack
from canary.numerics.restoration import reward_need, turn_to_reward
from canary.numerics.trust_region import Tier, solve
from canary.types import Metrics


@dataclass(frozen=True, kw_only=True)
class TrustRegionConfig:
    """Settings of the shared trust-region update."""

    target_kl: float = 0.01
    """Radius delta of the trust region: the largest mean KL divergence of one update."""
    target_kl_end: float | None = None
    """The radius at the end of the run, if it is another one: it goes there linearly. Steps whose length never falls keep
    wandering with the noise of their gradients."""
    damping: float = 0.1
    """Multiple of the identity added to the Fisher matrix."""
    fisher_states: int = 0
    """The Fisher matrix is the mean over at most so many states of the batch, drawn evenly; 0: over all of them. Distinct
    inputs that were merged always count all. Too few (250) made policies get stuck."""
    cg_iterations: int = 10
    """Most conjugate-gradient iterations for the natural gradients."""
    cg_tolerance: float = 1e-5
    """Conjugate gradient also stops at this residual, relative to the gradient."""
    backtracks: int = 10
    """Attempts of the line search."""
    shrink: float = 0.8
    """Factor between two attempts."""
    surrogate_scale: Literal["step", "episode", "signal"] = "step"
    """Units of the constraint surrogates. `episode`: per-step mean times mean episode length, the true units, of which the
    noise of a sampled gradient promises too much. `signal`: those times the share of the gradient that is signal, so
    that a step does what was promised of it. `step`: the per-step mean alone, as if one step in an episode were signal."""
    signal_between: Literal["updates", "environments"] = "updates"
    """Whose gradients are compared to tell signal from noise. `updates`: those of this batch and the last, which costs nothing,
    but calls signal what an episode that lasts through both has of its own. `environments`: those of two halves of the
    environments, at the price of one more conjugate gradient."""
    tolerated_loss: float | None = None
    """Share of its best mean return that a policy may lose while it restores its constraint. Beyond it restoring steps turn
    towards the reward, at three times as much entirely (see `canary.numerics.restoration`). None: they never do."""

    def radius(self, progress: ArrayLike) -> ArrayLike:
        """delta when this share of the run is over."""
        if self.target_kl_end is None:
            return self.target_kl
        return self.target_kl + (self.target_kl_end - self.target_kl) * progress


class Samples(eqx.Module):
    """A flattened batch as the policy update sees it."""

    action: Shaped[Array, "sample ..."]
    reward_advantage: Float[Array, "sample"]
    cost_advantages: Float[Array, "signal sample"]
    """Centred advantage of every signal that the constraints are made of."""
    weight: Float[Array, "sample"]
    """Discount g_t of the cost at each step."""
    half: Bool[Array, "sample"]
    """Whether the sample is of the first half of the environments (every other one)."""


class StepReport(eqx.Module):
    """What happened, for the log."""

    tier: Array
    radius: ArrayLike
    accepted: Bool[Array, ""]
    backtracks: Array
    kl: Float[Array, ""]
    values: Float[Array, "constraint"]
    predicted: Float[Array, "constraint"]
    """Change of each constraint that the linear model promised for the full step."""
    surrogate: Float[Array, "constraint"]
    """Change of each constraint surrogate at the accepted step."""
    cosine: Float[Array, ""]
    """Angle between reward and (first) constraint gradient in the Fisher metric."""
    signal: Float[Array, ""]
    """Share of the (first) constraint's gradient that is signal: what gradients of independent samples have in common, in the
    Fisher metric. They share what is true and not their noise."""
    direction: Float[Array, "params"]
    """The natural gradient of the (first) constraint, of unit length: what the next update compares its own with."""
    cg_residual: Float[Array, ""]
    entropy: Float[Array, ""]
    exploration: Float[Array, ""]
    """Share of the actions that the policy still tries."""


def trust_region_step(
    policy: Policy,
    inputs: Inputs,
    samples: Samples,
    bound: Callable[[Float[Array, "signal"]], Float[Array, "constraint"]],
    scale: Float[Array, ""],
    ready: Bool[Array, ""],
    config: TrustRegionConfig,
    last_direction: Float[Array, "params"] | None = None,
    progress: ArrayLike = 0.0,
    lost: ArrayLike = 0.0,
) -> tuple[Policy, StepReport]:
    """One constrained step of the policy; the policy itself if there is nothing safe to do.

    `bound(Z)` gives the constraint surrogates L_i from the surrogate changes Z of the signals:
    Z = scale * mean_t[ g_t * ratio_t * A_t ], so `bound(0)` is the value c of the constraints at theta_k and autodiff
    through it gives their gradients b. `progress` in [0, 1] is the share of the run that is over, `lost` the share of the
    best return that is gone.
    """
    radius = config.radius(progress)
    start, unravel = ravel_pytree(policy)
    old = inputs.evaluate(policy)
    old_log_prob = old.log_prob(samples.action)

    def distribution(theta: Float[Array, "params"]) -> Distribution:
        return inputs.evaluate(unravel(theta))

    def surrogates(theta: Float[Array, "params"]):
        new = distribution(theta)
        ratio = jnp.exp(new.log_prob(samples.action) - old_log_prob)
        change = scale * (samples.cost_advantages * samples.weight * ratio).mean(1)
        reward, entropy = (ratio * samples.reward_advantage).mean(), new.entropy().mean()
        return jnp.concatenate([reward[None], bound(change), entropy[None]]), new

    at_start, pullback, _ = jax.vjp(surrogates, start, has_aux=True)
    all_but_entropy = jnp.eye(at_start.shape[0] - 1, at_start.shape[0])
    (gradients,) = jax.vmap(pullback)(all_but_entropy)  # (g, b_1, b_2)
    values = at_start[1:-1]

    seen = few_states(inputs, config.fisher_states)
    product = fisher_product(lambda theta: unravel(theta)(seen.rows), start, seen.shares(), config.damping)

    def natural_gradient(gradient: Float[Array, "params"]):
        return conjugate_gradient(
            product, gradient, iterations=config.cg_iterations, tolerance=config.cg_tolerance
        )

    natural = jax.vmap(natural_gradient)(gradients)
    gram = natural.solution @ natural.image.T
    gram = 0.5 * (gram + gram.T)
    solution = solve(gram, values, radius)
    if config.tolerated_loss is not None:
        need = reward_need(jnp.asarray(lost), config.tolerated_loss)
        solution = turn_to_reward(solution, gram, values, need)
    tier = jnp.where(ready, solution.tier, Tier.NO_STEP)

    def evaluate(theta: Float[Array, "params"]) -> Candidate:
        now, new = surrogates(theta)
        change = now - at_start
        return Candidate(change[0], change[1:-1], new.kl_from(old).mean())

    def accept(candidate: Candidate) -> Bool[Array, ""]:
        return acceptable(candidate, tier=tier, values=values, radius=radius)

    search = backtrack(
        evaluate, accept, start, solution.coefficients @ natural.solution,
        shrink=config.shrink, attempts=config.backtracks,
    )  # fmt: skip
    kept = search.accepted.astype(start.dtype)
    strength = jnp.sqrt(jnp.maximum(gram[1, 1], 1e-30))
    if config.signal_between == "updates":
        before = jnp.zeros_like(start) if last_direction is None else last_direction
        signal = gradients[1] @ before / strength
    else:
        half = jax.grad(lambda theta: half_surrogate(distribution(theta), samples, bound, scale))(start)
        signal = shared_signal(
            half, natural_gradient(half).solution, natural.solution[1], strength, samples.half
        )
    report = StepReport(
        tier=tier,
        radius=radius,
        accepted=search.accepted,
        backtracks=search.attempts_used,
        kl=jnp.where(search.accepted, search.evaluation.kl, 0.0),
        values=values,
        predicted=(solution.predicted_values - values) * kept,
        surrogate=jnp.where(search.accepted, search.evaluation.constraint_changes, 0.0),
        cosine=gram[0, 1] / jnp.sqrt(jnp.maximum(gram[0, 0] * gram[1, 1], 1e-30)),
        signal=signal,
        direction=jnp.nan_to_num(natural.solution[1] / strength),
        cg_residual=natural.residual_norm.max(),
        entropy=at_start[-1],
        exploration=old.exploration(),
    )
    return unravel(search.point), report


def half_surrogate(
    new: Distribution,
    samples: Samples,
    bound: Callable[[Float[Array, "signal"]], Float[Array, "constraint"]],
    scale: Float[Array, ""],
) -> Float[Array, ""]:
    """What has at theta_k the gradient of the (first) constraint that one half of the environments alone would give."""
    slope = jax.jacobian(bound)(jnp.zeros(samples.cost_advantages.shape[0]))[0]
    share = samples.weight * samples.half / samples.half.mean()
    return scale * slope @ (samples.cost_advantages * share * new.log_prob(samples.action)).mean(1)


def shared_signal(
    half: Float[Array, "params"],
    natural_half: Float[Array, "params"],
    natural: Float[Array, "params"],
    strength: Float[Array, ""],
    members: Bool[Array, "sample"],
) -> Float[Array, ""]:
    """b_1·b_2 / b·b in the H⁻¹ metric, where b = p b_1 + (1 - p) b_2 and half of the environments gave b_1.

    0 if there is one environment only: nothing then tells its signal from its noise.
    """
    share = members.mean()
    other = half @ (natural - share * natural_half) / (1 - share)
    return jnp.where(share < 1, other / strength**2, 0)


def few_states(inputs: Inputs, most: int) -> Inputs:
    """At most `most` of the inputs of a batch, the same places in every batch; all of them if `most` is 0."""
    count = inputs.rows.shape[0]
    if inputs.merged or most == 0 or count <= most:
        return inputs
    return Inputs(inputs.rows[np.random.default_rng(0).permutation(count)[:most]])


def fisher_product(
    distribution: Callable[[Float[Array, "params"]], Distribution],
    theta: Float[Array, "params"],
    weights: Float[Array, "row"],
    damping: float,
) -> Callable[[Float[Array, "params"]], Float[Array, "params"]]:
    """v -> (J' M J + damping) v: M is the Hessian of the mean KL in the distribution's own few numbers, J the network.

    The network is linearised once, and every product reuses its activations: no second-order differentiation of it.
    """
    old, push = jax.linearize(distribution, theta)
    pull = jax.linear_transpose(push, theta)

    def mean_kl(new: Distribution) -> Float[Array, ""]:
        return new.kl_from(old) @ weights

    def product(vector: Float[Array, "params"]) -> Float[Array, "params"]:
        _, curvature = jax.jvp(jax.grad(mean_kl), (old,), (push(vector),))
        return pull(curvature)[0] + damping * vector

    return product


def report_metrics(report: StepReport) -> Metrics:
    return {
        "tier": report.tier.astype(jnp.float32),
        "accepted": report.accepted.astype(jnp.float32),
        "backtracks": report.backtracks.astype(jnp.float32),
        "kl": report.kl,
        "kl_fraction": report.kl / report.radius,
        "entropy": report.entropy,
        "exploration": report.exploration,
        "gradient_cosine": report.cosine,
        "signal_fraction": report.signal,
        "cg_residual": report.cg_residual,
        "bound_value": report.values[0],
        "bound_surrogate_change": report.surrogate[0],
    }
