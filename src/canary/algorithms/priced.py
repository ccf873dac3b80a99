"""The reward minus a price on each constraint: what Canary and PPO-Lagrangian share.

    A(x, a) = (A^r / sd(A^r) - p(x) A^c / sd(A^c)) / (1 + p(x)),    p(x) = lambda w(x)

A^c is the advantage of the priced cost and p(x) its price: lambda everywhere (w = 1, PPO-Lagrangian)
or lambda times a weight of the state (Canary). Each advantage is in units of its own deviation, so
p / (1 + p) is the constraint's share of the step in a state, for any units of reward and cost.
Dividing by 1 + p gives all states similar weight. Without it a few states at risk would outweigh
the others, and the policy would forget how to earn reward in safe states.

A proportional-integral controller in logarithms sets lambda. With K the constrained quantity in
units of its allowed value:

    e = clip(s log K, -1, 1),    log I <- clip(log I + k_i e),    lambda = exp(clip(log I + k_p e))

with a sensitivity s: a probability varies by factors, a mean by per cents (`SENSITIVITY`).
The policy itself integrates, so the proportional term does most of the work. K is measured over a
window of episodes, so it lags by the time that the window takes to renew. During this lag a high
price overshoots: the reward loses its influence, and the policy forgets how to earn it. So the
highest price is proportional to the share of the window that one batch renews.

With several constraints, each has a price: p A^c / sd(A^c) and p are sums over them.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import add

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from canary.algorithms.advantages import Batch, breach_indicator, cost_advantages, spent_after
from canary.algorithms.base import EstimationConfig, Task
from canary.algorithms.clipped import ClippedMethod, Objective
from canary.constraints import Kind
from canary.numerics.costs import EpisodeWindow, in_limits, recent
from canary.numerics.risk import value_at_risk, violation_rate
from canary.types import Metrics, Rollout, Terms, numbered

Steps = Float[Array, "time env"]

INTEGRAL_GAIN = 0.03
PROPORTIONAL_GAIN = 1.0
LOWEST_PRICE = 0.02
SENSITIVITY: dict[Kind, float] = {"chance": 1.0, "mean": 10.0, "cvar": 10.0}
START = 0.5  # log lambda: become safe before rich
START_OF_SEVERAL = 0.0  # log lambda: several high prices together would outweigh the reward


class Price(eqx.Module):
    """State of the controller, one entry per constraint."""

    log_integral: Float[Array, "*constraint"]

    @classmethod
    def at_start(cls, constraints: int = 1) -> "Price":
        return cls(
            jnp.full((), START) if constraints == 1 else jnp.full(constraints, START_OF_SEVERAL)
        )


def renewed_share(batch: Batch, horizon: int, window: int) -> float:
    """Share of a window of `window` whole episodes that one batch renews."""
    return batch.rollout.reward.size / (horizon * window)


def highest_price(renewed: float, progress: ArrayLike) -> Array:
    """200 times the share of the window that a batch renews, at least e^2, rising fivefold over the
    run. At the start a high price would keep the policy from learning to earn reward; later,
    learning rates are smaller and the policy keeps what it learnt. A policy that was trained before
    has learnt to earn, so its price may be as high from the start."""
    return jnp.asarray(max(200 * renewed, math.exp(2)) * (1 + 4 * progress))


def next_price(
    price: Price,
    level: Float[Array, "*constraint"],
    highest: ArrayLike,
    lowest: ArrayLike,
    sensitivity: ArrayLike = 1.0,
) -> tuple[Price, Float[Array, "*constraint"]]:
    """The controller and lambda after K was measured as `level`; NaN (not measured) counts as 1."""
    bounds = jnp.log(lowest), jnp.log(highest)
    error = jnp.clip(sensitivity * jnp.log(jnp.maximum(level, 1e-6)), -1, 1)
    error = jnp.where(jnp.isnan(error), 0.0, error)
    log_integral = jnp.clip(price.log_integral + INTEGRAL_GAIN * error, *bounds)
    multiplier = jnp.exp(jnp.clip(log_integral + PROPORTIONAL_GAIN * error, *bounds))
    return Price(log_integral), multiplier


def priced_advantage(
    reward: Steps, costs: Sequence[Steps], prices: Sequence[Steps | Float[Array, ""]]
) -> Float[Array, "time env"]:
    """A(x, a), the first equation of this module."""
    charged = (price * standardised(cost) for price, cost in zip(prices, costs, strict=True))
    return (standardised(reward) - reduce(add, charged)) / (1 + reduce(add, prices))


def standardised(advantage: Steps) -> Steps:
    """The centred advantage in units of its deviation; non-finite entries count as 0."""
    advantage = jnp.where(jnp.isfinite(advantage), advantage, 0)
    centred = advantage - advantage.mean()
    return centred / (jnp.sqrt(jnp.mean(centred**2)) + 1e-8)


@dataclass(frozen=True)
class Charge:
    """One constraint on one batch."""

    level: Float[Array, ""]
    """K; at most 1 is allowed."""
    advantage: Steps
    """A^c."""
    weight: Steps
    """w(x), the weight of the price in each state."""
    targets: Sequence[Steps]
    """Targets of the constraint's critics."""
    metrics: Metrics


@dataclass(frozen=True)
class Penalty:
    """How one constraint is priced."""

    critics: int
    sensitivity: float
    """s of the controller."""
    lowest_price: float
    """Positive, so that the price can rise again in time."""
    charge: Callable[[Batch, Terms], Charge]
    """`charge(batch, terms)`; the batch has one cost and the values of the constraint's critics."""


def priced_method(
    task: Task,
    estimation: EstimationConfig,
    penalty: Callable[[Kind], Penalty],
    *,
    observe_spent: bool,
) -> ClippedMethod:
    """The clipped method that prices each constraint by the penalty of its kind."""
    penalties = [penalty(kind) for kind in task.kinds]
    return ClippedMethod(
        critics=sum(each.critics for each in penalties),
        observe_spent=observe_spent,
        memory=Price.at_start(len(penalties)),
        standardise="none",
        objective=priced_objective(penalties, task.horizon, estimation.window),
    )


def priced_objective(
    penalties: Sequence[Penalty], horizon: int, window: int
) -> Callable[[Batch, Terms, Price], Objective]:
    """The reward minus the priced constraints, measured over at least `window` episodes."""

    def objective(batch: Batch, terms: Terms, memory: Price) -> Objective:
        reward_advantage, reward_target = batch.reward
        charges, first = [], 1
        for penalty, seen, asked in zip(penalties, batch.by_cost(), terms.by_cost(), strict=True):
            last = first + penalty.critics
            own = replace(
                seen, values=batch.values[first:last], next_values=batch.next_values[first:last]
            )
            charges.append(penalty.charge(own, asked))
            first = last
        levels = jnp.stack([charge.level for charge in charges])
        shape = memory.log_integral.shape
        lowest = np.array([each.lowest_price for each in penalties], np.float32).reshape(shape)
        sensitivity = np.array([each.sensitivity for each in penalties], np.float32).reshape(shape)
        grown = 1.0 if terms.fine_tuning else terms.progress
        highest = highest_price(renewed_share(batch, horizon, window), grown)
        controller, multiplier = next_price(
            memory, levels.reshape(shape), highest, lowest, sensitivity
        )
        multipliers = list(multiplier.reshape(-1))
        found = [
            {"multiplier": each, "constraint_level": charge.level} | charge.metrics
            for each, charge in zip(multipliers, charges, strict=True)
        ]
        joint = {"multiplier": multiplier.sum(), "constraint_level": levels.max()}
        prices = [each * charge.weight for each, charge in zip(multipliers, charges, strict=True)]
        return Objective(
            advantage=priced_advantage(
                reward_advantage, [charge.advantage for charge in charges], prices
            ),
            targets=jnp.stack([reward_target, *(t for each in charges for t in each.targets)]),
            memory=controller,
            metrics=found[0] if len(found) == 1 else joint | numbered(found),
        )

    return objective


def expected_sum(estimation: EstimationConfig, kind: Kind, aim: float = 1.0) -> Penalty:
    """Holds K, the expectation of a sum over the episode (see `ppo_lagrangian`), at `aim`, with one
    critic."""

    def charge(batch: Batch, terms: Terms) -> Charge:
        level, eta = constrained(batch.window, estimation.window, terms, kind)
        signal, discount, weight = charged(
            batch.rollout, eta, terms, kind, estimation.cost_discount
        )
        advantage, target = cost_advantages(
            batch.rollout, signal, batch.values[0], batch.next_values[0],
            discount=discount, decay=estimation.gae_lambda,
        )  # fmt: skip
        metrics = {"eta": eta * terms.limit}
        return Charge(level / aim, weight * advantage, jnp.ones_like(advantage), [target], metrics)

    return Penalty(1, SENSITIVITY[kind], LOWEST_PRICE, charge)


def constrained(
    window: EpisodeWindow, episodes: int, terms: Terms, kind: Kind
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """K of the recent episodes, and eta in units of the limit."""
    valid = recent(window, episodes)
    costs, count = in_limits(window.cost, terms.limit), jnp.maximum(valid.sum(), 1)
    # Capped at the limit: above it CVaR may be flat, and any eta gives an upper bound of CVaR.
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
    """The charge of each step, the discount of the sum of charges, and the weight of each step's
    advantage in the gradient of K."""
    # 1[C > l] and (C - eta)+ depend on C, which is discounted already
    ones = jnp.ones_like(rollout.discount)
    if kind == "chance":
        return breach_indicator(rollout, terms.limit), 1.0, ones
    if kind == "mean":
        return rollout.cost, cost_discount, rollout.discount
    return jnp.maximum(spent_after(rollout) - eta, 0) * rollout.done, 1.0, ones
