"""PPO-Lagrangian: clipped updates on the reward minus a price for the constraint (Ray et al.,
2019).

    maximise J(pi)  subject to  K(pi) <= 1,           J(pi) - lambda (K(pi) - 1)

K is what the constraint limits, in units of what it allows, and always the expectation of a sum
over the episode:

    Chance   K = P(C > l) / eps                          1 / eps for the step that takes the episode over the limit
    Mean     K = E[C] / l                                the cost
    CVaR     K = (eta + E[(C - eta)+] / eps) / l         (C - eta)+ / eps at the end, eta = min(VaR_eps(C), l) held fixed

So one critic gives its advantage A^K, and the policy follows A / sd(A) - lambda A^K: with the
reward advantage in units of its own deviation, a gain means the same for rewards of any size. The
price follows the error e = K - 1 of recent episodes,

    integral    lambda <- (lambda + k_i e)+                                        dual ascent
    pid         I <- (I + k_i e)+,   lambda = (I + k_p e + k_d (K - K_before)+)+   (Stooke et al., 2020)
"""

from dataclasses import dataclass, field
from typing import Literal

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from canary.algorithms.base import Algorithm, EstimationConfig, Task
from canary.algorithms.clipped_update import (
    ClippedConfig,
    ClippedMethod,
    Objective,
    clipped_algorithm,
)
from canary.algorithms.signals import breach_indicator, cost_advantages, spent_after
from canary.constraints import Kind
from canary.numerics.moments import EpisodeWindow, Span, mean_return, recent
from canary.numerics.risk import value_at_risk, violation_rate
from canary.numerics.units import in_limits
from canary.types import Amount, Rollout, Terms

Steps = Float[Array, "time env"]

# A new policy may break a small epsilon fifty times over. The price must come down as fast as it
# rose.
LARGEST_ERROR = 1.0


@dataclass(frozen=True, kw_only=True)
class PPOLagrangianConfig:
    """Settings of PPO-Lagrangian."""

    estimation: EstimationConfig = field(default_factory=EstimationConfig)
    clipped: ClippedConfig = field(default_factory=lambda: ClippedConfig(standardise="batch"))
    multiplier: Literal["integral", "pid"] = "integral"
    """How the price follows the error: `integral` is dual ascent; `pid` answers to the error itself
    and to its rise as well, which damps the oscillation of the first."""
    multiplier_init: Amount = 0.0
    """The price at the start."""
    integral_gain: Amount = 0.05
    """What an error of once the allowed amount adds to the price per update, k_i."""
    proportional_gain: Amount = 0.3
    """`pid`: how much of the error itself is in the price, k_p."""
    derivative_gain: Amount = 0.3
    """`pid`: how much of a rise since the last update is in the price, k_d."""


class Price(eqx.Module):
    """The controller between two updates."""

    integral: Float[Array, ""]
    multiplier: Float[Array, ""]
    before: Float[Array, ""]
    """K at the last update; not a number until there is one."""
    worth: Float[Array, ""]
    """The largest |mean return| so far: the unit of the price."""


def make_ppo_lagrangian(config: PPOLagrangianConfig, task: Task) -> Algorithm:
    observed = config.estimation.observe_spent
    start = jnp.asarray(config.multiplier_init, float)
    method = ClippedMethod(
        critics=1,
        # A mean does not care what was spent before; a tail does.
        observe_spent=task.constraint != "mean" if observed is None else observed,
        memory=Price(start, start, jnp.full_like(start, jnp.nan), jnp.zeros_like(start)),
        objective=priced_objective(config, task.constraint),
    )
    return clipped_algorithm(method, task, config.estimation, config.clipped)


def priced_objective(config: PPOLagrangianConfig, kind: Kind):
    """The reward minus the constraint at the price from before this batch, which then moves on."""
    estimation = config.estimation

    def objective(
        rollout: Rollout,
        reward: tuple[Steps, Steps],
        values: Float[Array, "critic time env"],
        next_values: Float[Array, "critic time env"],
        window: EpisodeWindow,
        terms: Terms,
        memory: Price,
    ) -> Objective:
        reward_advantage, reward_target = reward
        level, eta = constrained(window, estimation.span, terms, kind)
        signal, discount, weight = charged(rollout, eta, terms, kind, estimation.cost_discount)
        advantage, target = cost_advantages(
            rollout,
            signal,
            values[1],
            next_values[1],
            discount=discount,
            decays=estimation.cost_decays,
        )
        scale = 1 if kind == "mean" else 1 / terms.epsilon
        priced = (
            memory.multiplier
            * memory.worth
            * jnp.where(jnp.isfinite(advantage), advantage, 0)
            * weight
            * scale
        )
        ready = window.total >= estimation.warmup_episodes
        return Objective(
            advantage=reward_advantage - priced,
            targets=jnp.stack([reward_target, target]),
            memory=next_price(
                memory, level, jnp.abs(mean_return(window, estimation.span)), ready, config
            ),
            metrics={
                "multiplier": memory.multiplier,
                "constraint_level": level,
                "eta": eta * terms.limit,
            },
        )

    return objective


def constrained(
    window: EpisodeWindow, span: Span, terms: Terms, kind: Kind
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """K of the recent episodes, at least 1 / epsilon of them where there are so many; and eta, in
    limits."""
    enough = jnp.maximum(span.minimum, jnp.ceil(1 / terms.epsilon))
    valid = recent(window, Span(enough, span.batches))  # type: ignore[arg-type]
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


def next_price(
    memory: Price,
    level: Float[Array, ""],
    worth: Float[Array, ""],
    ready: Bool[Array, ""],
    config: PPOLagrangianConfig,
) -> Price:
    """The price after an update; it waits until enough episodes ended."""
    error = jnp.clip(level - 1, -1, LARGEST_ERROR)
    integral = jnp.maximum(memory.integral + config.integral_gain * error, 0)
    multiplier = integral
    if config.multiplier == "pid":
        rise = jnp.where(
            jnp.isfinite(memory.before), jnp.clip(level - memory.before, 0, LARGEST_ERROR), 0
        )
        multiplier = jnp.maximum(
            integral + config.proportional_gain * error + config.derivative_gain * rise, 0
        )
    usable = ready & jnp.isfinite(level)
    return Price(*(jnp.where(usable, new, old) for new, old in [
        (integral, memory.integral), (multiplier, memory.multiplier), (level, memory.before),
        (jnp.maximum(memory.worth, worth), memory.worth),
    ]))  # fmt: skip
