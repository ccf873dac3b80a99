"""Canary: policy optimisation under Cantelli's bound, in the clipped engine.

    maximise J(pi)  subject to  P(C > l) <= sigma^2 / (sigma^2 + (1 - mu)^2) <= epsilon

with mu and sigma the moments of the shaped cost X = phi_d(C / l) over whole episodes (see
`canary.numerics.costs`). The bound holds for every law of the cost and every way to estimate
its gradient. This file estimates that gradient.

To first order in the effect of one action on the cost, the advantage of psi(C) with psi = phi^2 is

    A^psi(x, a) = E[psi(C) | x, a] - E[psi(C) | x]  ~  E[psi'(C) | x] A^c(x, a)

The first factor is the price of a unit of cost in this episode, the second the effect of the action
on the cost. They need opposite estimators:

    w(x) = E[X | x] = phi(y) + V_X(x)     slow: from the undiscounted critic V_X of the X to come
    A^c(x, a)                             local: from a discounted critic of the cost, GAE

psi' is proportional to X inside (d, 1), so w stands for E[psi' | x]. The policy follows the reward
minus the cost at the price (see `canary.algorithms.priced`)

    p(x) = lambda w(x) / max(rms(w), sqrt(epsilon / 3))

Where the constraint is tight, E[X^2] is about epsilon, and E[w^2] is smaller, because w is a
forecast. When the risk changes, w and the price follow at once; lambda must wait for whole episodes
and corrects the rest. While the risk is far too high, rms(w) keeps the typical price at lambda, so
that the reward still counts.
docs/algorithms/canary.md derives the error of the product and measures it.
"""

from dataclasses import dataclass, field
from typing import Annotated, ClassVar

import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from canary.algorithms.advantages import Batch, cost_advantages, spent_after
from canary.algorithms.base import Algorithm, EstimationConfig, Task
from canary.algorithms.clipped import ClippedConfig, clipped_algorithm
from canary.algorithms.priced import (
    SENSITIVITY,
    Charge,
    Penalty,
    expected_sum,
    priced_method,
    renewed_share,
)
from canary.constraints import Kind
from canary.numerics.costs import EpisodeWindow, cost_moments, in_limits, recent, shaped
from canary.numerics.risk import cantelli_probability, value_at_risk
from canary.types import Terms
from canary.values import PositiveShare, Range, Settings

Steps = Float[Array, "time env"]
Scalar = Float[Array, ""]
DeadZone = Annotated[float, Range(0, 0.99)]

LOCAL_UNIT = 0.1  # limits: a hundred steps spend a small part of the limit
MEAN_AIM = 0.98  # `aim` for a mean or a CVaR among several constraints
LOWEST_PRICE = 0.37  # smallest lambda; in states without risk w = 0, and so is the price
TARGET_DECAY = 0.97  # lambda of V_X's targets: a late cost must reach early steps


@dataclass(frozen=True, kw_only=True)
class CanaryConfig(Settings):
    """Settings of Canary."""

    estimation: EstimationConfig = field(default_factory=EstimationConfig)
    clipped: ClippedConfig = field(default_factory=ClippedConfig)
    dead_zone: DeadZone = 0.7
    """Dead zone d of the shaped cost: episode costs up to d * limit count as 0. A larger d gives a
    tighter bound, estimated from fewer episodes."""
    local_discount: PositiveShare = 0.99
    """Discount of A^c: an action is charged for costs up to about 1 / (1 - discount) steps ahead."""

    serves: ClassVar[tuple[Kind, ...]] = ("chance",)
    # Among several constraints, those on a mean or a CVaR are priced as in PPO-Lagrangian.
    serves_several: ClassVar[bool] = True

    def make(self, task: Task) -> Algorithm:
        method = priced_method(
            task,
            self.estimation,
            lambda kind: (
                cantelli_penalty(self, task.horizon)
                if kind == "chance"
                else expected_sum(self.estimation, kind, MEAN_AIM)
            ),
            observe_spent=self.estimation.observe_spent is not False,
        )
        return clipped_algorithm(method, task, self.estimation, self.clipped)


def aim(renewed: float) -> float:
    """The bound is held at this share of epsilon. If a batch renews little of the window, the price
    reacts late and P varies more, so the share is smaller."""
    return min(0.6 + 3 * renewed, 0.9)


def cantelli_penalty(config: CanaryConfig, horizon: int) -> Penalty:
    """Price in this episode times the effect of the action on the cost."""
    estimation = config.estimation

    def charge(batch: Batch, terms: Terms) -> Charge:
        rollout, window = batch.rollout, batch.window
        local, ahead = batch.values
        next_local, next_ahead = batch.next_values
        scale = tightening(window, estimation.window, terms)
        bound, tightened = (
            shaped_bound(window, estimation.window, limit, config.dead_zone)
            for limit in (terms.limit, terms.limit / scale)
        )

        before, after = (
            shaped(y * scale, config.dead_zone) for y in (rollout.spent, spent_after(rollout))
        )
        _, ahead_target = cost_advantages(
            rollout, after - before, ahead, next_ahead, discount=1.0, decay=TARGET_DECAY
        )
        effect, local_target = cost_advantages(
            rollout, rollout.cost / LOCAL_UNIT, local, next_local,
            discount=config.local_discount * estimation.cost_discount, decay=estimation.gae_lambda,
        )  # fmt: skip
        weight = jnp.clip(before + ahead, 0, 1) * rollout.discount
        typical = jnp.sqrt(jnp.maximum(jnp.mean(weight**2), terms.epsilon / 3))
        return Charge(
            level=tightened
            / (aim(renewed_share(batch, horizon, estimation.window)) * terms.epsilon),
            advantage=effect,
            weight=weight / typical,
            targets=[local_target, ahead_target],
            metrics={"risk_bound": bound, "tightening": 1 / scale},
        )

    return Penalty(2, SENSITIVITY["chance"], LOWEST_PRICE, charge)


def shaped_bound(
    window: EpisodeWindow, episodes: int, limit: Scalar, dead_zone: ArrayLike
) -> Scalar:
    """Cantelli's bound on P(C > limit) from the moments of the shaped cost of recent episodes."""
    moments = cost_moments(window, episodes, limit, dead_zone)
    return cantelli_probability(moments.mean, moments.variance, 1.0, or_equal=True)


def tightening(window: EpisodeWindow, episodes: int, terms: Terms) -> Scalar:
    """1 / L, where costs are measured in units of L limits, L = max(1, 0.9 q(C)).

    While nearly all episodes cost far more than the limit, X = 1 in all of them and has no
    gradient. L falls to 1 as their costs fall. q is the quantile that a share epsilon (at least 5%)
    of the episodes reaches, so the bound is at least epsilon while L > 1.
    """
    valid = recent(window, episodes)
    share = jnp.maximum(terms.epsilon, 0.05)
    high = value_at_risk(in_limits(window.cost, terms.limit), share, valid)
    return jnp.where(valid.any(), 1 / jnp.maximum(0.9 * high, 1), 1.0)
