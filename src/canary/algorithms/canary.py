"""Canary: Cantelli Constrained Policy Optimization.

    maximise J(pi)  subject to  B(pi) = (1/epsilon - 1) sigma^2(pi) - (l - mu(pi))^2 <= 0,  mu(pi) <= l

By Cantelli's inequality both together imply P(C > l) <= epsilon (paper eqs. chebyshev_constraint, cantelli-objective).
In units of the limit (l = 1), with beta = 1/epsilon - 1 and with Z, Z~ the surrogate changes of E[C] and E[C^2], the
surrogate of B is exactly quadratic in Z (eqs. cpo-cheb, d-surrogate):

    L_B = B + beta Z~ + (2 - 2 mu / epsilon) Z - Z^2 / epsilon,        L_mu = mu - 1 + Z
"""

from dataclasses import dataclass, field
from typing import Literal

import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from canary.algorithms.base import Algorithm, EstimationConfig, Task
from canary.algorithms.critics import CriticConfig
from canary.algorithms.trust_region_step import TrustRegionConfig
from canary.algorithms.trust_region_update import RiskConstraint, RiskEstimate, trust_region_algorithm
from canary.numerics.advantages import augmented_cost, generalised_advantages
from canary.numerics.calibration import tail_multiple
from canary.numerics.moments import CostMoments, EpisodeWindow, Span, cost_moments, recent
from canary.numerics.risk import cantelli_value, provably_violating, worst_case_cantelli, worst_case_mean
from canary.types import Chance, Metrics, Rollout


@dataclass(frozen=True, kw_only=True)
class CanaryConfig:
    """Settings of Canary; the defaults are the paper's."""

    estimation: EstimationConfig = field(default_factory=EstimationConfig)
    trust_region: TrustRegionConfig = field(default_factory=TrustRegionConfig)
    critic: CriticConfig = field(default_factory=CriticConfig)
    unbiased: bool = False
    """Add s^2 / (epsilon n) to the Cantelli value: the plug-in estimate from n episodes is too small by that much."""
    structured_critic: bool = False
    """Compose the second-moment value from parts: 2 y V(x) + g W(x), where W is the second moment of the cost to come. Its
    dependence on the spent cost y is then right by construction instead of learnt."""
    restoration: Literal["bound", "second-moment"] = "bound"
    """What is lowered while the bound is violated. `bound`: the Cantelli value itself, to which a cost that is always 1 is as
    good as one that is mostly 0: both vary little. `second-moment`: the same without credit for a higher mean, so
    beta E[C^2] + 2 E[C], which leads to low costs; once the bound is met, the bound is what holds."""
    calibration: bool = False
    """Replace Cantelli's sqrt(1/epsilon - 1) by an upper confidence bound on the multiple of sigma that the recent episodes
    need (see `canary.numerics.calibration`): less conservative, and no longer free of assumptions on the cost's law."""
    calibration_episodes: int = 500
    """Recent episodes that the calibration looks at."""
    calibration_confidence: float = 0.99
    """Confidence of its bound."""


def make_canary(config: CanaryConfig, task: Task) -> Algorithm:
    risk = RiskConstraint(critics=2, estimate=cantelli_constraint(config, task.constraint))
    return trust_region_algorithm(risk, task, config.estimation, config.trust_region, config.critic)


def cantelli_constraint(config: CanaryConfig, constraint: Chance):
    """The Cantelli and the mean constraint of the paper's eqs. taylor-c, taylor-b, taylor-cmu."""

    def estimate(
        rollout: Rollout,
        values: Float[Array, "critic time env"],
        next_values: Float[Array, "critic time env"],
        window: EpisodeWindow,
    ) -> RiskEstimate:
        moments = cost_moments(window, config.estimation.span, constraint.limit)
        epsilon, metrics = tail_share(config, constraint.epsilon, window)
        beta = 1 / epsilon - 1
        value = cantelli_value(moments.mean, moments.variance, 1.0, epsilon)
        if config.unbiased:
            value += moments.variance / (epsilon * jnp.maximum(moments.count - 1, 1))

        def bound(change: Float[Array, "signal"]) -> Float[Array, "constraint"]:
            z, z_square = change
            credit = (2 * moments.mean * z + z**2) / epsilon  # what a higher mean takes off the variance
            if config.restoration == "second-moment":
                credit *= value <= 0
            return jnp.stack([value + beta * z_square + 2 * z - credit, moments.mean - 1 + z])

        advantages, targets = cost_signals(rollout, values, next_values, config)
        metrics |= {
            "cost_mean": moments.mean * constraint.limit,
            "cost_deviation": jnp.sqrt(moments.variance) * constraint.limit,
            "mean_value": moments.mean - 1,
            "window_episodes": moments.count,
        }
        worst = worst_case(config, epsilon, moments) if config.estimation.cost_discount < 1 else None
        return RiskEstimate(advantages, targets, bound, moments.length, metrics, worst)

    return estimate


def tail_share(config: CanaryConfig, epsilon: float, window: EpisodeWindow) -> tuple[ArrayLike, Metrics]:
    """The epsilon of the Cantelli bound: the constraint's own or, calibrated, the larger one that suffices,
    1 / (1 + kappa^2)."""
    if not config.calibration:
        return epsilon, {}
    counts = recent(window, Span(config.calibration_episodes))
    multiple = tail_multiple(window.cost, counts, epsilon, config.calibration_confidence)
    return 1 / (1 + multiple**2), {"tail_multiple": multiple}


def worst_case(config: CanaryConfig, epsilon: ArrayLike, moments: CostMoments):
    """The paper's theorem and corollary in units of the limit; with an undiscounted cost they say nothing (K is infinite)."""
    region = {"radius": config.trust_region.target_kl, "discount": config.estimation.cost_discount}

    def bounds(largest: Float[Array, "signal"]) -> Metrics:
        cost, square = largest
        return {
            "worst_case_bound": worst_case_cantelli(
                mean=moments.mean,
                limit=1.0,
                epsilon=epsilon,
                advantage=cost,
                augmented_advantage=square,
                **region,
            ),
            "worst_case_mean": worst_case_mean(1.0, cost, **region),
            "provably_violating": provably_violating(
                moments.mean, jnp.sqrt(moments.variance), 1.0, epsilon
            ).astype(jnp.float32),
        }

    return bounds


def cost_signals(
    rollout: Rollout,
    values: Float[Array, "critic time env"],
    next_values: Float[Array, "critic time env"],
    config: CanaryConfig,
) -> tuple[Float[Array, "signal time env"], Float[Array, "critic time env"]]:
    """Advantages of the cost and of the augmented cost c~, and the targets of their two critics."""
    gamma, decay = config.estimation.cost_discount, config.estimation.cost_decay

    def advantages(signal: Array, value: Array, next_value: Array, discount: float) -> Array:
        return generalised_advantages(
            signal, value, next_value, stops=rollout.done, done=rollout.done, discount=discount, decay=decay
        )

    cost, next_cost = values[0], next_values[0]
    cost_advantage = advantages(rollout.cost, cost, next_cost, gamma)
    square = augmented_cost(rollout.cost, rollout.spent, rollout.discount)
    if not config.structured_critic:
        square_advantage = advantages(square, values[1], next_values[1], gamma)
        targets = jnp.stack([cost_advantage + cost, square_advantage + values[1]])
        return jnp.stack([cost_advantage, square_advantage]), targets

    # With R the discounted cost to come, C = y + g R, so E[C^2 | x] - y^2 = 2 y V(x) + g^2 W(x) with W = E[R^2 | x].
    # V~ is the value of the augmented cost discounted from now on, hence one factor g less on W.
    to_come, next_to_come = values[1], next_values[1]
    spent_next = rollout.spent + rollout.discount * rollout.cost
    value = 2 * rollout.spent * cost + rollout.discount * to_come
    next_value = 2 * spent_next * next_cost + rollout.discount * gamma * next_to_come
    square_advantage = advantages(square, value, next_value, gamma)
    # E[R^2 | x] = E[c^2 + 2 gamma c R' + gamma^2 R'^2]: a return of the signal c^2 + 2 gamma c V(x'), discounted by gamma^2.
    signal = rollout.cost**2 + 2 * gamma * rollout.cost * next_cost * ~rollout.done
    target = advantages(signal, to_come, next_to_come, gamma**2) + to_come
    return jnp.stack([cost_advantage, square_advantage]), jnp.stack([cost_advantage + cost, target])
