"""Canary as published: Cantelli Constrained Policy Optimization, in CPO's trust region.

    maximise J(pi)  subject to  B(pi) = (1/epsilon - 1) sigma^2(pi) - (l - mu(pi))^2 <= 0,  mu(pi) <= l

By Cantelli's inequality both together imply P(C > l) <= epsilon (paper eqs. chebyshev_constraint,
cantelli-objective). In units of the limit (l = 1), with beta = 1/epsilon - 1 and with Z, Z~ the
surrogate changes of E[C] and E[C^2], the surrogate of B is exactly quadratic in Z (eqs. cpo-cheb,
d-surrogate):

    L_B = B + beta Z~ + (2 - 2 mu / epsilon) Z - Z^2 / epsilon,        L_mu = mu - 1 + Z
"""

from dataclasses import dataclass, field
from typing import ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Float

from canary.algorithms.base import Algorithm, EstimationConfig, Task
from canary.algorithms.critics import CriticConfig
from canary.algorithms.signals import cost_advantages
from canary.algorithms.trust_region import (
    Evidence,
    RiskConstraint,
    RiskEstimate,
    trust_region_algorithm,
)
from canary.algorithms.trust_region_step import TrustRegionConfig
from canary.constraints import Kind
from canary.numerics.costs import augmented_cost
from canary.numerics.moments import CostMoments, cost_moments
from canary.numerics.risk import cantelli_probability, cantelli_value, provably_violating
from canary.types import Metrics, Terms
from canary.values import Settings


@dataclass(frozen=True, kw_only=True)
class CantelliCPOConfig(Settings):
    """Settings of the paper's Canary; the defaults are the paper's."""

    estimation: EstimationConfig = field(default_factory=EstimationConfig)
    trust_region: TrustRegionConfig = field(default_factory=TrustRegionConfig)
    critic: CriticConfig = field(default_factory=CriticConfig)

    serves: ClassVar[tuple[Kind, ...]] = ("chance",)

    def make(self, task: Task) -> Algorithm:
        risk = RiskConstraint(critics=2, estimate=cantelli_constraint(self))
        return trust_region_algorithm(risk, task, self.estimation, self.trust_region, self.critic)


def cantelli_constraint(config: CantelliCPOConfig):
    """The Cantelli and the mean constraint of the paper's eqs. taylor-c, taylor-b, taylor-cmu."""

    def estimate(evidence: Evidence) -> RiskEstimate:
        terms, epsilon = evidence.terms, evidence.terms.epsilon
        moments = cost_moments(evidence.window, config.estimation.window, terms.limit)
        value = cantelli_value(moments.mean, moments.variance, 1.0, epsilon)

        def bound(change: Float[Array, "signal"]) -> Float[Array, "constraint"]:
            z, z_square = change
            credit = (2 * moments.mean * z + z**2) / epsilon  # credit for a larger mean
            bounded = value + (1 / epsilon - 1) * z_square + 2 * z - credit
            return jnp.stack([bounded, moments.mean - 1 + z])

        advantages, targets = cost_signals(
            evidence, config.estimation, folded=config.trust_region.as_authors
        )
        return RiskEstimate(
            advantages=advantages,
            targets=targets,
            bound=bound,
            length=moments.length,
            metrics=cantelli_metrics(moments, terms),
            weight=evidence.rollout.discount,
        )

    return estimate


def cost_signals(
    evidence: Evidence, estimation: EstimationConfig, *, folded: bool
) -> tuple[Float[Array, "signal time env"], Float[Array, "critic time env"]]:
    """Advantages and critic targets of c_t and of c~_t (eq. aug-cost), whose discounted sums over
    an episode are C and C^2. With a `folded` critic (docs/readings.md) the targets are of l c_t and
    of l^2 (beta c~_t + 2 c_t), in raw units."""
    rollout, limit = evidence.rollout, evidence.terms.limit
    beta = 1 / evidence.terms.epsilon - 1
    signals = rollout.cost, augmented_cost(rollout.cost, rollout.spent, rollout.discount)
    if folded:
        signals = limit * signals[0], limit**2 * (beta * signals[1] + 2 * signals[0])
    each = [
        cost_advantages(
            rollout, *known, discount=estimation.cost_discount, decay=estimation.gae_lambda
        )
        for known in zip(signals, evidence.values, evidence.next_values, strict=True)
    ]
    advantages, targets = zip(*each, strict=True)
    if folded:
        cost = advantages[0] / limit
        advantages = cost, (advantages[1] / limit**2 - 2 * cost) / beta
    return jnp.stack(advantages), jnp.stack(targets)


def cantelli_metrics(moments: CostMoments, terms: Terms) -> Metrics:
    """Cost in raw units, and the bound on P(C > limit) that its moments give."""
    deviation = jnp.sqrt(moments.variance)
    violates = provably_violating(moments.mean, deviation, 1.0, terms.epsilon)
    return {
        "cost_mean": moments.mean * terms.limit,
        "cost_deviation": deviation * terms.limit,
        "mean_value": moments.mean - 1,
        "window_episodes": moments.count,
        "provably_violating": violates.astype(jnp.float32),
        "risk_bound": cantelli_probability(moments.mean, moments.variance, 1.0),
    }
