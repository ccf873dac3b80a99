"""Canary: Cantelli Constrained Policy Optimization.

    maximise J(pi)  subject to  B(pi) = (1/epsilon - 1) sigma^2(pi) - (l - mu(pi))^2 <= 0,  mu(pi) <= l

By Cantelli's inequality both together imply P(C > l) <= epsilon (paper eqs. chebyshev_constraint,
cantelli-objective). In units of the limit (l = 1), with beta = 1/epsilon - 1 and with Z, Z~ the
surrogate changes of E[C] and E[C^2], the surrogate of B is exactly quadratic in Z (eqs. cpo-cheb,
d-surrogate):

    L_B = B + beta Z~ + (2 - 2 mu / epsilon) Z - Z^2 / epsilon,        L_mu = mu - 1 + Z

With a dead zone the same holds for X = phi_d(C) in the place of C (see
`canary.numerics.shaped_cost`).
"""

from dataclasses import dataclass, field
from typing import Annotated, Literal

import jax.numpy as jnp
from jaxtyping import Array, Float

from canary.algorithms.base import Algorithm, EstimationConfig, Task
from canary.algorithms.critics import CriticConfig
from canary.algorithms.signals import cost_advantages, spent_after
from canary.algorithms.trust_region_step import TrustRegionConfig
from canary.algorithms.trust_region_update import (
    Evidence,
    RiskConstraint,
    RiskEstimate,
    trust_region_algorithm,
)
from canary.numerics.advantages import augmented_cost
from canary.numerics.dead_zone import followed
from canary.numerics.moments import CostMoments, Span, cost_moments
from canary.numerics.risk import (
    cantelli_probability,
    cantelli_value,
    provably_violating,
    worst_case_cantelli,
    worst_case_mean,
)
from canary.numerics.shaped_cost import shaped
from canary.types import Metrics, Range, Terms

DeadZone = Annotated[float, Range(0, 0.99)]


@dataclass(frozen=True, kw_only=True)
class CanaryConfig:
    """Settings of Canary; the defaults are the paper's."""

    estimation: EstimationConfig = field(default_factory=EstimationConfig)
    trust_region: TrustRegionConfig = field(default_factory=TrustRegionConfig)
    critic: CriticConfig = field(default_factory=CriticConfig)
    restoration: Literal["bound", "second-moment"] = "bound"
    """What is lowered while the bound is violated. `bound`: B itself, the paper's, to which an
    episode that costs less than the mean is as bad as one that costs more: both vary.
    `second-moment`: the tangent of B at mu = epsilon, which is E[X^2] <= epsilon up to a factor: it
    implies the bound, and no cost is too low for it."""
    dead_zone: DeadZone | Literal["adaptive"] | None = None
    """Dead zone d of the shaped cost, in limits: costs up to d * limit are free, and what is above
    counts up to the limit. `adaptive`: it follows the violations. None: the paper's bound, on the
    cost itself."""


def make_canary(config: CanaryConfig, task: Task) -> Algorithm:
    start = 0.0 if config.dead_zone == "adaptive" else config.dead_zone
    risk = RiskConstraint(
        critics=2,
        estimate=cantelli_constraint(config),
        memory=None if start is None else jnp.asarray(start),
    )
    return trust_region_algorithm(risk, task, config.estimation, config.trust_region, config.critic)


def cantelli_constraint(config: CanaryConfig):
    """The Cantelli and the mean constraint of the paper's eqs. taylor-c, taylor-b, taylor-cmu."""

    def estimate(evidence: Evidence) -> RiskEstimate:
        terms, dead_zone = evidence.terms, evidence.memory
        if config.dead_zone == "adaptive":
            dead_zone = followed(dead_zone, evidence.window, terms)
        epsilon = terms.epsilon
        moments = cost_moments(evidence.window, config.estimation.span, terms.limit, dead_zone)
        value = cantelli_value(moments.mean, moments.variance, 1.0, epsilon)
        creditless = (value > 0) & (config.restoration == "second-moment")
        tangent = jnp.where(creditless, jnp.minimum(moments.mean, epsilon), moments.mean)
        value += (moments.mean - tangent) ** 2 / epsilon

        def bound(change: Float[Array, "signal"]) -> Float[Array, "constraint"]:
            z, z_square = change
            credit = (
                2 * tangent * z + z**2 * ~creditless
            ) / epsilon  # what a higher mean takes off the variance
            bounded = value + (1 / epsilon - 1) * z_square + 2 * z - credit
            return jnp.stack([bounded, moments.mean - 1 + z])

        advantages, targets = cost_signals(evidence, dead_zone, config.estimation)
        weight = evidence.rollout.discount
        return RiskEstimate(
            advantages=advantages,
            targets=targets,
            bound=bound,
            length=moments.length,
            metrics=cantelli_metrics(evidence, moments, dead_zone, config.estimation),
            weight=weight if dead_zone is None else jnp.ones_like(weight),
            worst_case=worst_case(config, terms, moments),
            memory=dead_zone,
        )

    return estimate


def cost_signals(
    evidence: Evidence, dead_zone: Float[Array, ""] | None, estimation: EstimationConfig
) -> tuple[Float[Array, "signal time env"], Float[Array, "critic time env"]]:
    """Advantages and critic targets of the signals whose sums over an episode are X and X^2.

    Unshaped: c_t and c~_t of eq. aug-cost, discounted. Shaped: c_t = phi(y_{t+1}) - phi(y_t) and
    phi(y_{t+1})^2 - phi(y_t)^2; y carries the discount already, so these carry none.
    """
    rollout = evidence.rollout
    if dead_zone is None:
        signals = rollout.cost, augmented_cost(rollout.cost, rollout.spent, rollout.discount)
        discount = estimation.cost_discount
    else:
        before, after = (
            shaped(spent, dead_zone) for spent in (rollout.spent, spent_after(rollout))
        )
        signals = after - before, after**2 - before**2
        discount = 1.0
    each = [
        cost_advantages(rollout, *known, discount=discount, decays=estimation.cost_decays)
        for known in zip(signals, evidence.values, evidence.next_values, strict=True)
    ]
    advantages, targets = zip(*each, strict=True)
    return jnp.stack(advantages), jnp.stack(targets)


def cantelli_metrics(
    evidence: Evidence,
    moments: CostMoments,
    dead_zone: Float[Array, ""] | None,
    estimation: EstimationConfig,
) -> Metrics:
    """Cost in raw units; X = phi(C), its moments and the guaranteed bound on P(C > limit) that they
    give."""
    window, terms = evidence.window, evidence.terms
    raw = cost_moments(window, estimation.span, terms.limit)
    batch = cost_moments(window, Span(0), terms.limit, dead_zone)
    deviation = jnp.sqrt(moments.variance)
    violates = provably_violating(raw.mean, jnp.sqrt(raw.variance), 1.0, terms.epsilon)
    metrics = {
        "cost_mean": raw.mean * terms.limit,
        "cost_deviation": jnp.sqrt(raw.variance) * terms.limit,
        "mean_value": moments.mean - 1,
        "window_episodes": moments.count,
        "batch_bound": cantelli_value(batch.mean, batch.variance, 1.0, terms.epsilon),
        "provably_violating": violates.astype(jnp.float32),
        "shaped_bound": cantelli_probability(
            moments.mean, moments.variance, 1.0, or_equal=dead_zone is not None
        ),
        "shaped_mean": moments.mean,
        "shaped_deviation": deviation,
    }
    return metrics if dead_zone is None else metrics | {"dead_zone": dead_zone}


def worst_case(config: CanaryConfig, terms: Terms, moments: CostMoments):
    """The paper's theorem in units of the limit; with an undiscounted cost it says nothing (K is
    infinite)."""
    discount = config.estimation.cost_discount
    if discount == 1 or config.dead_zone is not None:
        return None
    region = {"radius": config.trust_region.target_kl, "discount": discount}

    def bounds(largest: Float[Array, "signal"]) -> Metrics:
        cost, square = largest
        return {
            "worst_case_bound": worst_case_cantelli(
                mean=moments.mean,
                limit=1.0,
                epsilon=terms.epsilon,
                advantage=cost,
                augmented_advantage=square,
                **region,
            ),
            "worst_case_mean": worst_case_mean(1.0, cost, **region),
        }

    return bounds
