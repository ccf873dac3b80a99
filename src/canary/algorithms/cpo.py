"""CPO: Constrained Policy Optimization (Achiam et al., 2017) on the breach indicator or on the expected cost.

    maximise J(pi)  subject to  P(C > l) <= epsilon        (`indicator`, the paper's baseline, sec:indicator)
    maximise J(pi)  subject to  E[C] <= l                  (`mean`, what is usually meant by CPO)

Both are an expected return, so one critic and one linear surrogate do. The indicator is paid once, by the
step that crosses the limit: with y_t the cost spent so far and costs that are never negative,

    c^I_t = 1[y_t <= l < y_{t+1}],     sum_t c^I_t = 1[C > l],     L = P(C > l) - epsilon + Z^I
"""

from dataclasses import dataclass, field
from typing import Literal

import jax.numpy as jnp
from jaxtyping import Array, Float

from canary.algorithms.base import Algorithm, EstimationConfig, Task
from canary.algorithms.critics import CriticConfig
from canary.algorithms.signals import cost_advantages, episode_metrics
from canary.algorithms.trust_region_step import TrustRegionConfig
from canary.algorithms.trust_region_update import RiskConstraint, RiskEstimate, trust_region_algorithm
from canary.numerics.moments import EpisodeWindow, cost_moments
from canary.types import Chance, Rollout


@dataclass(frozen=True, kw_only=True)
class CPOConfig:
    """Settings of CPO; the defaults are the paper's."""

    estimation: EstimationConfig = field(default_factory=EstimationConfig)
    trust_region: TrustRegionConfig = field(default_factory=TrustRegionConfig)
    critic: CriticConfig = field(default_factory=CriticConfig)
    constraint: Literal["indicator", "indicator-at-end", "mean"] = "indicator"
    """`indicator`: P(C > limit) <= epsilon, charged to the step that crosses the limit. `indicator-at-end`:
    the same, charged to the last step, for costs that can be negative. `mean`: E[C] <= limit, no epsilon."""


def make_cpo(config: CPOConfig, task: Task) -> Algorithm:
    risk = RiskConstraint(critics=1, estimate=expectation_constraint(config, task.constraint))
    return trust_region_algorithm(risk, task, config.estimation, config.trust_region, config.critic)


def breach_indicator(rollout: Rollout, limit: float, *, at_end: bool = False) -> Float[Array, "time env"]:
    """1 for the step that takes the episode over the limit or, `at_end`, for the last step of one that is
    over it. Compared in raw units, so that no rounding can flip a tie."""
    over = rollout.episodes.cost > limit
    pays = over & (rollout.done if at_end else rollout.spent_raw <= limit)
    return pays.astype(rollout.cost.dtype)


def expectation_constraint(config: CPOConfig, constraint: Chance):
    """An expected return with a limit: P(C > limit) - epsilon <= 0 or, in limits, E[C] - 1 <= 0."""

    def estimate(
        rollout: Rollout,
        values: Float[Array, "critic time env"],
        next_values: Float[Array, "critic time env"],
        window: EpisodeWindow,
    ) -> RiskEstimate:
        moments = cost_moments(window, config.estimation.span, constraint.limit)
        metrics = episode_metrics(window, config.estimation, constraint.limit)
        if config.constraint == "mean":
            signal, discount, weight = rollout.cost, config.estimation.cost_discount, rollout.discount
            value = moments.mean - 1
        else:
            signal = breach_indicator(
                rollout, constraint.limit, at_end=config.constraint == "indicator-at-end"
            )
            discount, weight = 1.0, jnp.ones_like(rollout.discount)  # a probability is never discounted
            value = metrics["violation_estimate"] - constraint.epsilon
        advantage = cost_advantages(
            rollout, signal, values[0], next_values[0], discount=discount, decay=config.estimation.cost_decay
        )
        return RiskEstimate(
            advantages=advantage[None],
            targets=(advantage + values[0])[None],
            bound=lambda change: value + change,
            length=moments.length,
            metrics=metrics,
            weight=weight,
        )

    return estimate
