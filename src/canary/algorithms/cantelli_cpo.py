"""Canary as published: Cantelli Constrained Policy Optimization, in CPO's trust region.

    maximise J(pi)  subject to  B(pi) = (1/epsilon - 1) sigma^2(pi) - (l - mu(pi))^2 <= 0,  mu(pi) <= l

By Cantelli's inequality the two together imply P(C > l) <= epsilon (paper eqs.
chebyshev_constraint, cantelli-objective). In units of the limit (l = 1), with beta = 1/epsilon - 1
and with Z, Z~ the surrogate changes of E[C] and E[C^2], the surrogate of B is exactly quadratic in
Z (eqs. cpo-cheb, d-surrogate):

    L_B = B + beta Z~ + (2 - 2 mu / epsilon) Z - Z^2 / epsilon,        L_mu = mu - 1 + Z
"""

from dataclasses import dataclass

import jax.numpy as jnp
from jaxtyping import Array, Float

from canary.algorithms.advantages import Batch, Values, cost_advantages
from canary.algorithms.base import Algorithm, EstimationConfig, Task
from canary.algorithms.trust_region import (
    RiskConstraint,
    RiskEstimate,
    TrustRegionSettings,
    trust_region_algorithm,
)
from canary.numerics.costs import augmented_cost, cost_moments
from canary.numerics.risk import cantelli_probability, cantelli_value, provably_violating
from canary.types import Terms


@dataclass(frozen=True, kw_only=True)
class CantelliCPOConfig(TrustRegionSettings):
    """Settings of the paper's Canary; the defaults are the paper's."""

    def make(self, task: Task) -> Algorithm:
        risk = RiskConstraint(critics=2, estimate=cantelli_constraint(self))
        return trust_region_algorithm(risk, task, self)


def cantelli_constraint(config: CantelliCPOConfig):
    """The Cantelli and the mean constraint of the paper's eqs. taylor-c, taylor-b, taylor-cmu."""

    def estimate(batch: Batch, terms: Terms) -> RiskEstimate:
        epsilon = terms.epsilon
        moments = cost_moments(batch.window, config.estimation.window, terms.limit)
        mean, variance = moments.mean, moments.variance
        value = cantelli_value(mean, variance, 1.0, epsilon)

        def bound(change: Float[Array, "signal"]) -> Float[Array, "constraint"]:
            z, z_square = change
            credit = (2 * mean * z + z**2) / epsilon  # credit for a larger mean
            bounded = value + (1 / epsilon - 1) * z_square + 2 * z - credit
            return jnp.stack([bounded, mean - 1 + z])

        advantages, targets = cost_signals(
            batch, terms, config.estimation, folded=config.trust_region.as_authors
        )
        deviation = jnp.sqrt(variance)
        violating = provably_violating(mean, deviation, 1.0, epsilon)
        return RiskEstimate(
            advantages=advantages,
            targets=targets,
            bound=bound,
            weight=batch.rollout.discount,
            metrics={
                "cost_mean": mean * terms.limit,
                "cost_deviation": deviation * terms.limit,
                "mean_value": mean - 1,
                "window_episodes": moments.count,
                "provably_violating": violating.astype(jnp.float32),
                "risk_bound": cantelli_probability(mean, variance, 1.0),
            },
        )

    return estimate


def cost_signals(
    batch: Batch, terms: Terms, estimation: EstimationConfig, *, folded: bool
) -> tuple[Float[Array, "signal time env"], Values]:
    """Advantages and critic targets of c_t and of c~_t (eq. aug-cost), whose discounted sums over
    an episode are C and C^2. With a `folded` critic (docs/readings.md) the critics learn l c_t and
    l^2 (beta c~_t + 2 c_t), in raw units."""
    rollout, limit, beta = batch.rollout, terms.limit, 1 / terms.epsilon - 1
    signals = rollout.cost, augmented_cost(rollout.cost, rollout.spent, rollout.discount)
    if folded:
        signals = limit * signals[0], limit**2 * (beta * signals[1] + 2 * signals[0])
    each = [
        cost_advantages(
            rollout, *known, discount=estimation.cost_discount, decay=estimation.gae_lambda
        )
        for known in zip(signals, batch.values, batch.next_values, strict=True)
    ]
    advantages, targets = zip(*each, strict=True)
    if folded:
        cost = advantages[0] / limit
        advantages = cost, (advantages[1] / limit**2 - 2 * cost) / beta
    return jnp.stack(advantages), jnp.stack(targets)
