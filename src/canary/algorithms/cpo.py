"""CPO: Constrained Policy Optimization (Achiam et al., 2017) on the breach indicator or on the
expected cost.

    maximise J(pi)  subject to  P(C > l) <= epsilon        (`indicator`, the paper's baseline, sec:indicator)
    maximise J(pi)  subject to  E[C] <= l                  (`mean`, what is usually meant by CPO)

Both are expected returns, so one critic and one linear surrogate suffice. The indicator is charged
once, to the step that crosses the limit. With y_t the cost spent so far and costs that are never
negative,

    c^I_t = 1[y_t <= l < y_{t+1}],     sum_t c^I_t = 1[C > l],     L = P(C > l) - epsilon + Z^I
"""

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from canary.algorithms.advantages import Batch, breach_indicator, cost_advantages
from canary.algorithms.base import Algorithm, Task
from canary.algorithms.trust_region import (
    RiskConstraint,
    RiskEstimate,
    TrustRegionSettings,
    trust_region_algorithm,
)
from canary.constraints import Kind
from canary.numerics.costs import cost_moments, episode_metrics
from canary.types import Terms


@dataclass(frozen=True, kw_only=True)
class CPOConfig(TrustRegionSettings):
    """Settings of CPO; the defaults are the paper's."""

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
        return trust_region_algorithm(risk, task, self)


def expectation_constraint(config: CPOConfig):
    """The constraint P(C > limit) - epsilon <= 0 or, in units of the limit, E[C] - 1 <= 0."""
    estimation = config.estimation

    def estimate(batch: Batch, terms: Terms) -> RiskEstimate:
        rollout, window = batch.rollout, batch.window
        metrics = episode_metrics(window, estimation.window, terms.limit)
        if config.constraint == "mean":
            mean = cost_moments(window, estimation.window, terms.limit).mean
            signal, value = rollout.cost, mean - 1
            discount, weight = estimation.cost_discount, rollout.discount
        else:
            at_end = config.constraint == "indicator-at-end"
            signal = breach_indicator(rollout, terms.limit, at_end=at_end)
            value = metrics["violation_estimate"] - terms.epsilon
            discount, weight = 1.0, None  # a probability is never discounted
        advantage, target = cost_advantages(
            rollout, signal, batch.values[0], batch.next_values[0],
            discount=discount, decay=estimation.gae_lambda,
        )  # fmt: skip
        return RiskEstimate(
            advantage[None], target[None], lambda change: value + change, weight, metrics
        )

    return estimate
