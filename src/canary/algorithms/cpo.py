"""CPO: Constrained Policy Optimization (Achiam et al., 2017) on the breach indicator or on the
expected cost.

    maximise J(pi)  subject to  P(C > l) <= epsilon        (`indicator`, the paper's baseline, sec:indicator)
    maximise J(pi)  subject to  E[C] <= l                  (`mean`, what is usually meant by CPO)

Both are an expected return, so one critic and one linear surrogate do. The indicator is paid once,
by the step that crosses the limit: with y_t the cost spent so far and costs that are never
negative,

    c^I_t = 1[y_t <= l < y_{t+1}],     sum_t c^I_t = 1[C > l],     L = P(C > l) - epsilon + Z^I
"""

from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal

import jax.numpy as jnp

from canary.algorithms.base import Algorithm, EstimationConfig, Task
from canary.algorithms.critics import CriticConfig
from canary.algorithms.signals import breach_indicator, cost_advantages, episode_metrics
from canary.algorithms.trust_region import (
    Evidence,
    RiskConstraint,
    RiskEstimate,
    trust_region_algorithm,
)
from canary.algorithms.trust_region_step import TrustRegionConfig
from canary.constraints import Kind
from canary.numerics.moments import cost_moments
from canary.values import Settings


@dataclass(frozen=True, kw_only=True)
class CPOConfig(Settings):
    """Settings of CPO; the defaults are the paper's."""

    estimation: EstimationConfig = field(default_factory=EstimationConfig)
    trust_region: TrustRegionConfig = field(default_factory=TrustRegionConfig)
    critic: CriticConfig = field(default_factory=CriticConfig)
    constraint: Literal["indicator", "indicator-at-end", "mean"] = "indicator"
    """`indicator`: P(C > limit) <= epsilon, charged to the step that crosses the limit.
    `indicator-at-end`: the same, charged to the last step, for costs that can be negative. `mean`:
    E[C] <= limit, no epsilon."""

    serves: ClassVar[tuple[Kind, ...]] = ("chance", "mean")

    def make(self, task: Task) -> Algorithm:
        config = replace(self, constraint="mean") if task.constraint == "mean" else self
        risk = RiskConstraint(
            critics=1,
            estimate=expectation_constraint(config),
            sees_spent=not self.trust_region.as_authors,
        )
        return trust_region_algorithm(risk, task, self.estimation, self.trust_region, self.critic)


def expectation_constraint(config: CPOConfig):
    """An expected return with a limit: P(C > limit) - epsilon <= 0 or, in limits, E[C] - 1 <= 0."""

    def estimate(evidence: Evidence) -> RiskEstimate:
        rollout, window, terms = evidence.rollout, evidence.window, evidence.terms
        moments = cost_moments(window, config.estimation.window, terms.limit)
        metrics = episode_metrics(window, config.estimation, terms.limit)
        if config.constraint == "mean":
            signal, value = rollout.cost, moments.mean - 1
            discount, weight = config.estimation.cost_discount, rollout.discount
        else:
            at_end = config.constraint == "indicator-at-end"
            signal = breach_indicator(rollout, terms.limit, at_end=at_end)
            # A probability is never discounted
            discount, weight = 1.0, jnp.ones_like(rollout.discount)
            value = metrics["violation_estimate"] - terms.epsilon
        advantage, target = cost_advantages(
            rollout, signal, evidence.values[0], evidence.next_values[0],
            discount=discount, decay=config.estimation.gae_lambda,
        )  # fmt: skip
        return RiskEstimate(
            advantages=advantage[None],
            targets=target[None],
            bound=lambda change: value + change,
            length=moments.length,
            metrics=metrics,
            weight=weight,
        )

    return estimate
