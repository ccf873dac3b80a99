"""What a trust-region step did, as metrics. Nothing here feeds back into training."""

from collections.abc import Callable

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from canary.algorithms.surrogates import Surrogates
from canary.algorithms.trust_region_step import StepResult
from canary.networks import Policy
from canary.numerics.tiers import Tier
from canary.types import Metrics


class Foresight(eqx.Module):
    """What the last update promised of the (first) constraint, and what it was measured at
    before."""

    value: Float[Array, ""]
    """Of the episodes of that update's batch alone; NaN before the first update."""
    promise: Float[Array, ""]

    @classmethod
    def nothing(cls) -> "Foresight":
        return cls(jnp.array(jnp.nan), jnp.array(jnp.nan))

    def compare(
        self, value: Float[Array, ""], promise: Float[Array, ""]
    ) -> tuple["Foresight", Metrics]:
        """What the step of the last update promised beside what came of it, each between two whole
        batches.

        A batch in which no episode ended measures nothing: then the older value waits, and promises
        add up.
        """
        known = jnp.isfinite(value)
        metrics = {
            "bound_predicted_change": self.promise,
            "bound_realised_change": value - self.value,
        }
        promised = jnp.where(known, promise, self.promise + promise)
        return Foresight(jnp.where(known, value, self.value), promised), metrics


def report_metrics(surrogates: Surrogates, step: StepResult) -> Metrics:
    old, found, gram = surrogates.old, step.search, step.natural.gram
    kept = found.accepted.astype(gram.dtype)
    kl = jnp.where(found.accepted, found.evaluation.kl, 0.0)
    values = step.linear.levels.constraints
    promise = step.linear.gradients[1] @ (found.point - step.linear.theta)
    return {
        "tier": step.tier.astype(jnp.float32),
        "accepted": kept,
        "backtracks": found.attempts_used.astype(jnp.float32),
        "kl": kl,
        "kl_fraction": kl / step.radius,
        "entropy": old.entropy().mean(),
        "exploration": old.exploration(),
        "gradient_cosine": gram[0, 1] / jnp.sqrt(jnp.maximum(gram[0, 0] * gram[1, 1], 1e-30)),
        "cg_residual": step.natural.residual,
        "bound_value": values[0],
        "bound_surrogate_change": jnp.where(
            found.accepted, found.evaluation.constraint_changes[0], 0.0
        ),
        "bound_promise": jnp.where(found.accepted, promise, 0.0),
    }


def worst_case_metrics(
    surrogates: Surrogates,
    new: Policy,
    step: StepResult,
    bounds: Callable[[Float[Array, "signal"]], Metrics],
) -> Metrics:
    """The bounds of the paper's theorem, which holds for nominal steps; NaN for all others."""
    holds = (step.tier == Tier.NOMINAL) & step.search.accepted
    return {
        name: jnp.where(holds, bound, jnp.nan)
        for name, bound in bounds(largest_advantages(surrogates, new)).items()
    }


def largest_advantages(surrogates: Surrogates, new: Policy) -> Float[Array, "signal"]:
    """max over the batch of |ratio A|: stands in for the theorem's alpha = max_x |E_{a ~ new} A(x,
    a)|."""
    samples = surrogates.samples
    log_prob = surrogates.inputs.evaluate(new).log_prob(samples.action)
    ratio = jnp.exp(log_prob - surrogates.old.log_prob(samples.action))
    return jnp.abs(ratio * samples.cost_advantages).max(1)
