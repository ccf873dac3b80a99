"""CVaR-CPO: CPO's machinery on a CVaR constraint, with a distributional cost critic.

    maximise J(pi)  subject to  CVaR_eps(C) = min_eta eta + E[(C - eta)+] / eps <= l

(paper eq. rockafellar; after Zhang et al., "CVaR-Constrained Policy Optimization"). The minimiser
is eta = VaR_eps(C), and by the envelope theorem the gradient may hold it fixed. With y_t the cost
spent so far and q_i(x) quantiles of the cost to come, V^h(x_t) = mean_i (y_t + g_t q_i(x_t) - eta)+
estimates E[(C - eta)+ | x_t], and GAE on V^h gives the advantage of the tail excess, whose
surrogate change is Z^h. In units of the limit:

    L = eta + E[(C - eta)+] / eps - 1 + Z^h / eps
"""

from dataclasses import dataclass, field
from typing import ClassVar

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from canary.algorithms.base import Algorithm, EstimationConfig, Task
from canary.algorithms.critics import CriticConfig
from canary.algorithms.quantile_critic import QuantileConfig, quantile_critic
from canary.algorithms.signals import cost_advantages, episode_metrics, spent_after, tail_advantages
from canary.algorithms.trust_region import (
    Evidence,
    RiskConstraint,
    RiskEstimate,
    trust_region_algorithm,
)
from canary.algorithms.trust_region_step import TrustRegionConfig
from canary.constraints import Kind
from canary.numerics.moments import cost_moments, recent
from canary.numerics.risk import value_at_risk
from canary.numerics.units import in_limits
from canary.types import Rollout
from canary.values import Settings


@dataclass(frozen=True, kw_only=True)
class CVaRCPOConfig(Settings):
    """Settings of CVaR-CPO; the defaults are the paper's where it states them."""

    estimation: EstimationConfig = field(default_factory=EstimationConfig)
    trust_region: TrustRegionConfig = field(default_factory=TrustRegionConfig)
    critic: CriticConfig = field(default_factory=CriticConfig)
    distribution: QuantileConfig = field(default_factory=QuantileConfig)

    serves: ClassVar[tuple[Kind, ...]] = ("chance", "cvar")
    # CVaR_eps(C) <= limit implies P(C > limit) <= eps: a chance constraint is served on the safe
    # side.

    def make(self, task: Task) -> Algorithm:
        model = quantile_critic(self.distribution, self.critic, self.estimation)
        risk = RiskConstraint(critics=0, estimate=cvar_constraint(self), model=model)
        return trust_region_algorithm(risk, task, self.estimation, self.trust_region, self.critic)


def cvar_constraint(config: CVaRCPOConfig):
    """CVaR_epsilon(C) - limit <= 0, in units of the limit."""
    span, decay = config.estimation.span, config.estimation.gae_lambda

    def estimate(evidence: Evidence) -> RiskEstimate:
        rollout, window, terms = evidence.rollout, evidence.window, evidence.terms
        moments = cost_moments(window, span, terms.limit)
        costs, valid = in_limits(window.cost, terms.limit), recent(window, span)
        totals = rollout.spent + rollout.discount * evidence.values
        eta = tail_threshold(costs, valid, totals, terms.epsilon)
        excess = jnp.sum(jnp.maximum(costs - eta, 0) * valid) / moments.count
        value = eta + excess / terms.epsilon - 1

        gamma = config.estimation.cost_discount
        next_totals = spent_after(rollout) + gamma * rollout.discount * evidence.next_values
        tail, next_tail = (jnp.maximum(total - eta, 0).mean(0) for total in (totals, next_totals))
        advantage = tail_advantages(rollout, tail, next_tail, eta, decay)
        # The limit is exceeded while no quantile and no new episode lies above eta: blame the worst
        # episodes.
        helpless = (value >= 0) & jnp.all(advantage == 0)
        advantage = jnp.where(helpless, worst_episodes(rollout, eta, moments.mean), advantage)
        return RiskEstimate(
            advantages=advantage[None],
            targets=jnp.zeros((0, *rollout.cost.shape)),
            bound=lambda change: value + change / terms.epsilon,
            length=moments.length,
            metrics=episode_metrics(window, config.estimation, terms.limit)
            | {"eta": eta * terms.limit, "cvar": (value + 1) * terms.limit},
            weight=jnp.ones_like(
                rollout.discount
            ),  # V^h is about the whole cost C: its discounts are inside
        )

    return estimate


def tail_threshold(
    costs: Float[Array, "ring"],
    valid: Array,
    totals: Float[Array, "quantile time env"],
    epsilon: ArrayLike,
) -> Float[Array, ""]:
    """VaR_epsilon of the recent episodes if there are at least 1 / epsilon of them; else of the
    critic's predictions of C, within the range of those episodes.

    Any threshold gives an upper bound of CVaR, so an error here is on the safe side.
    """

    def of_predictions() -> Float[Array, ""]:
        lowest, highest = (
            jnp.where(valid, costs, jnp.inf).min(),
            jnp.where(valid, costs, -jnp.inf).max(),
        )
        return jnp.clip(value_at_risk(totals.reshape(-1), epsilon), lowest, highest)

    enough = jnp.sum(valid) * epsilon >= 1 - 1e-6
    return jax.lax.cond(enough, lambda: value_at_risk(costs, epsilon, valid), of_predictions)


def worst_episodes(
    rollout: Rollout, threshold: Float[Array, ""], mean: Float[Array, ""]
) -> Float[Array, "time env"]:
    """C - mean for every step of an episode that ends in this batch with C >= threshold, 0 for all
    others."""
    total, zero = spent_after(rollout), jnp.zeros_like(rollout.cost)
    signal = (total - mean) * (rollout.done & (total >= threshold))
    return cost_advantages(rollout, signal, zero, zero, discount=1.0, decay=1.0)[0]
