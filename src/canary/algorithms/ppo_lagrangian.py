"""PPO-Lagrangian: clipped updates on the reward minus a price for the constraint (Ray et al.,
2019).

    maximise J(pi)  subject to  K(pi) <= 1,           J(pi) - lambda (K(pi) - 1)

K is what the constraint limits, in units of what it allows, and always the expectation of a sum
over the episode:

    Chance   K = P(C > l) / eps                          1 / eps for the step that takes the episode over the limit
    Mean     K = E[C] / l                                the cost
    CVaR     K = (eta + E[(C - eta)+] / eps) / l         (C - eta)+ / eps at the end, eta = min(VaR_eps(C), l) held fixed

So one critic gives its advantage A^K, and the policy follows the reward minus the price of A^K (see
`canary.algorithms.priced`): dual ascent in the logarithm of the price, with a proportional term
against oscillation (Stooke et al., 2020).
"""

from dataclasses import dataclass, field
from typing import ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Float

from canary.algorithms.base import Algorithm, EstimationConfig, Task
from canary.algorithms.clipped import (
    Batch,
    ClippedConfig,
    ClippedMethod,
    Objective,
    clipped_algorithm,
)
from canary.algorithms.priced import (
    Price,
    highest_price,
    next_price,
    price_metrics,
    priced_advantage,
)
from canary.algorithms.signals import breach_indicator, cost_advantages, spent_after
from canary.constraints import Kind
from canary.numerics.moments import EpisodeWindow, Span, recent
from canary.numerics.risk import value_at_risk, violation_rate
from canary.numerics.units import in_limits
from canary.types import Rollout, Terms

Steps = Float[Array, "time env"]


@dataclass(frozen=True, kw_only=True)
class PPOLagrangianConfig:
    """Settings of PPO-Lagrangian."""

    estimation: EstimationConfig = field(default_factory=EstimationConfig)
    clipped: ClippedConfig = field(default_factory=ClippedConfig)

    serves: ClassVar[tuple[Kind, ...]] = ("chance", "mean", "cvar")

    def make(self, task: Task) -> Algorithm:
        observed = self.estimation.observe_spent
        method = ClippedMethod(
            critics=1,
            # A mean does not care what was spent before; a tail does.
            observe_spent=task.constraint != "mean" if observed is None else observed,
            memory=Price.at_start(),
            standardise="none",
            objective=lagrangian_objective(self.estimation, task),
        )
        return clipped_algorithm(method, task, self.estimation, self.clipped)


def lagrangian_objective(estimation: EstimationConfig, task: Task):
    """The reward minus the priced constraint."""
    kind = task.constraint

    def objective(batch: Batch, terms: Terms, memory: Price) -> Objective:
        reward_advantage, reward_target = batch.reward
        level, eta = constrained(batch.window, estimation.span, terms, kind)
        signal, discount, weight = charged(
            batch.rollout, eta, terms, kind, estimation.cost_discount
        )
        advantage, target = cost_advantages(
            batch.rollout, signal, batch.values[1], batch.next_values[1],
            discount=discount, decay=estimation.gae_lambda,
        )  # fmt: skip
        highest = highest_price(signal.size, task.horizon, estimation.window)
        price, multiplier = next_price(memory, level, highest)
        return Objective(
            advantage=priced_advantage(reward_advantage, weight * advantage, multiplier),
            targets=jnp.stack([reward_target, target]),
            memory=price,
            metrics=price_metrics(level, multiplier) | {"eta": eta * terms.limit},
        )

    return objective


def constrained(
    window: EpisodeWindow, span: Span, terms: Terms, kind: Kind
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """K of the recent episodes, and eta, in limits."""
    valid = recent(window, span)
    costs, count = in_limits(window.cost, terms.limit), jnp.maximum(valid.sum(), 1)
    # At most the limit: where VaR is above it, CVaR may be flat, and every eta gives an upper bound
    # of it.
    eta = jnp.minimum(value_at_risk(costs, terms.epsilon, valid), 1)
    if kind == "chance":
        level = violation_rate(window.cost, terms.limit, valid) / terms.epsilon
    elif kind == "mean":
        level = jnp.sum(jnp.where(valid, costs, 0)) / count
    else:
        level = eta + jnp.sum(jnp.where(valid, jnp.maximum(costs - eta, 0), 0)) / (
            terms.epsilon * count
        )
    known = valid.any()
    return jnp.where(known, level, jnp.nan), jnp.where(known, eta, 0.0)


def charged(
    rollout: Rollout, eta: Float[Array, ""], terms: Terms, kind: Kind, cost_discount: float
) -> tuple[Steps, float, Steps]:
    """What each step is charged, the discount of its sum, and the weight of a step's advantage in
    the gradient of K."""
    # Probabilities and whole costs C have their discounts inside
    ones = jnp.ones_like(rollout.discount)
    if kind == "chance":
        return breach_indicator(rollout, terms.limit), 1.0, ones
    if kind == "mean":
        return rollout.cost, cost_discount, rollout.discount
    return jnp.maximum(spent_after(rollout) - eta, 0) * rollout.done, 1.0, ones
