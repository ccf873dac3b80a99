"""What a trust-region step did, as metrics. Nothing here feeds back into training."""

from collections.abc import Callable

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from canary.algorithms.surrogates import Surrogates
from canary.algorithms.trust_region_step import StepResult
from canary.networks import Policy
from canary.types import Metrics

WorstCase = Callable[[Float[Array, "signal"], Int[Array, ""]], Metrics]
"""Bounds on what the new policy may do, given the largest advantage of each signal under it and the
tier of the step."""


def report_metrics(surrogates: Surrogates, step: StepResult, radius: float) -> Metrics:
    old, found, gram = surrogates.old, step.search, step.natural.gram
    kept = found.accepted.astype(gram.dtype)
    kl = jnp.where(found.accepted, found.evaluation.kl, 0.0)
    values = step.linear.levels.constraints
    return {
        "tier": step.tier.astype(jnp.float32),
        "accepted": kept,
        "backtracks": found.attempts_used.astype(jnp.float32),
        "kl": kl,
        "kl_fraction": kl / radius,
        "entropy": old.entropy().mean(),
        "exploration": old.exploration(),
        "gradient_cosine": gram[0, 1] / jnp.sqrt(jnp.maximum(gram[0, 0] * gram[1, 1], 1e-30)),
        "cg_residual": step.natural.residual,
        "bound_value": values[0],
        "bound_surrogate_change": jnp.where(
            found.accepted, found.evaluation.constraint_changes[0], 0.0
        ),
    }


def worst_case_metrics(
    surrogates: Surrogates,
    new: Policy,
    step: StepResult,
    bounds: WorstCase,
) -> Metrics:
    """The bounds of the paper's theorem and corollary, with the batch's stand-in for alpha; NaN if
    the policy stayed as it was."""
    largest = largest_batch_advantages(surrogates, new)
    return {
        name: jnp.where(step.search.accepted, bound, jnp.nan)
        for name, bound in bounds(largest, step.tier).items()
    }


def largest_batch_advantages(surrogates: Surrogates, new: Policy) -> Float[Array, "signal"]:
    """max over the batch of |ratio A|: stands in for the theorem's alpha = max_x |E_{a ~ new} A(x,
    a)|, which `canary.exact.worst_case` computes exactly in finite environments."""
    samples = surrogates.samples
    log_prob = surrogates.inputs.evaluate(new).log_prob(samples.action)
    ratio = jnp.exp(log_prob - surrogates.old.log_prob(samples.action))
    return jnp.abs(ratio * samples.cost_advantages).max(1)
