"""CPPO: CVaR-constrained PPO by a Lagrangian (Ying et al., 2022), as a penalty on the advantage.

    maximise J(pi) - lambda * (CVaR_eps(C) - l),       CVaR_eps(C) = min_eta eta + E[(C - eta)+] / eps

G_t = y_t + g_t V^C(x_t) predicts the cost of the whole episode at step t. The policy follows A - penalty with

    state   penalty_t = lambda / eps * (G_t - eta)+                          as in the published code
    post    penalty_t = lambda / eps * GAE of the tail excess (G - eta)+     what the Lagrangian asks for

The first is a function of the state alone. It is a baseline: its expected policy gradient is zero, so the
constraint steers nothing. The second sees what the action led to. The multiplier is driven by a
proportional-integral controller of the error e = CVaR - l in raw cost units (paper tab:baseline-hyperparams):

    I <- clip(I + step * e, 0, cap),      lambda = clip(I + k_p * e, 0, cap)
"""

from dataclasses import dataclass, field
from typing import Literal

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from canary.algorithms.base import Algorithm, EstimationConfig, Task
from canary.algorithms.clipped_update import ClippedConfig, ClippedMethod, Objective, clipped_algorithm
from canary.algorithms.signals import cost_advantages, spent_after, tail_advantages
from canary.numerics.moments import EpisodeWindow, Span, recent
from canary.numerics.risk import conditional_value_at_risk, value_at_risk
from canary.types import Chance, Rollout

Steps = Float[Array, "time env"]


@dataclass(frozen=True, kw_only=True)
class CPPOConfig:
    """Settings of CPPO; those the paper states per environment are in the catalogue of experiments."""

    estimation: EstimationConfig = field(default_factory=EstimationConfig)
    clipped: ClippedConfig = field(default_factory=lambda: ClippedConfig(standardise="batch"))
    penalty: Literal["state", "post"] = "state"
    """`state`: the published penalty, whose expected gradient is zero. `post`: of what the action led to."""
    threshold: Literal["quantile", "tail-mean"] = "quantile"
    """eta: the (1 - epsilon) quantile of all G_t of the batch, or the mean above it as in the public code."""
    multiplier_init: float = 1.0
    """Lagrange multiplier at the start."""
    multiplier_step: float = 0.03
    """Integral gain: what an error of one unit of cost adds to the multiplier per update."""
    proportional_gain: float = 15.0
    """Proportional gain k_p."""
    multiplier_cap: float = 4000.0
    """Largest multiplier."""
    cvar_clip_ratio: float = 300.0
    """Largest penalty, as a multiple of the reward value |V(x_t)|."""


class Controller(eqx.Module):
    integral: Float[Array, ""]
    multiplier: Float[Array, ""]


def make_cppo(config: CPPOConfig, task: Task) -> Algorithm:
    observed = config.estimation.observe_spent
    start = jnp.clip(jnp.asarray(config.multiplier_init), 0, config.multiplier_cap)
    method = ClippedMethod(
        critics=1,
        observe_spent=config.penalty == "post" if observed is None else observed,
        memory=Controller(start, start),
        objective=penalised_objective(config, task.constraint),
    )
    return clipped_algorithm(method, task, config.estimation, config.clipped)


def penalised_objective(config: CPPOConfig, constraint: Chance):
    """The reward minus the tail penalty with the multiplier from before this batch, which then moves on."""
    epsilon, limit, estimation = constraint.epsilon, constraint.limit, config.estimation

    def objective(
        rollout: Rollout,
        reward_advantage: Steps,
        values: Float[Array, "critic time env"],
        next_values: Float[Array, "critic time env"],
        window: EpisodeWindow,
        memory: Controller,
    ) -> Objective:
        predicted = rollout.spent + rollout.discount * values[1]
        eta = batch_threshold(predicted.reshape(-1), epsilon, config.threshold)
        cvar = tail_mean(window, estimation.span, predicted, constraint)

        tail = jnp.maximum(predicted - eta, 0)
        if config.penalty == "post":
            after = spent_after(rollout) + estimation.cost_discount * rollout.discount * next_values[1]
            tail = tail_advantages(rollout, tail, jnp.maximum(after - eta, 0), eta, estimation.cost_decay)
        largest = config.cvar_clip_ratio * jnp.abs(values[0])
        penalty = jnp.clip(memory.multiplier / epsilon * tail * limit, -largest, largest)

        error = (cvar - 1) * limit
        ready = window.total >= estimation.warmup_episodes
        cost_advantage = cost_advantages(
            rollout, rollout.cost, values[1], next_values[1],
            discount=estimation.cost_discount, decay=estimation.cost_decay,
        )  # fmt: skip
        targets = jnp.stack([reward_advantage + values[0], cost_advantage + values[1]])
        return Objective(
            advantage=reward_advantage - jnp.where(jnp.isfinite(penalty), penalty, 0),
            targets=targets,
            memory=control(memory, error, ready, config),
            metrics={
                "multiplier": memory.multiplier,
                "eta": eta * limit,
                "cvar": cvar * limit,
                "penalty_mean": penalty.mean(),
                "penalty_deviation": penalty.std(),
            },
        )

    return objective


def batch_threshold(predicted: Float[Array, "sample"], epsilon: float, kind: str) -> Float[Array, ""]:
    """eta from the predicted episode costs of all steps of a batch."""
    return (value_at_risk if kind == "quantile" else conditional_value_at_risk)(predicted, epsilon)


def tail_mean(window: EpisodeWindow, span: Span, predicted: Steps, constraint: Chance) -> Float[Array, ""]:
    """CVaR of the recent episodes if there are at least 1 / epsilon, else of the predictions; in limits."""
    valid = recent(window, span)
    of_episodes = conditional_value_at_risk(window.cost / constraint.limit, constraint.epsilon, valid)
    of_predictions = conditional_value_at_risk(predicted.reshape(-1), constraint.epsilon)
    return jnp.where(jnp.sum(valid) * constraint.epsilon >= 1 - 1e-6, of_episodes, of_predictions)


def control(
    memory: Controller, error: Float[Array, ""], ready: Bool[Array, ""], config: CPPOConfig
) -> Controller:
    """The next multiplier; it waits until enough episodes ended, for early predictions mean nothing."""
    integral = jnp.clip(memory.integral + config.multiplier_step * error, 0, config.multiplier_cap)
    multiplier = jnp.clip(integral + config.proportional_gain * error, 0, config.multiplier_cap)
    usable = ready & jnp.isfinite(error)
    return Controller(
        jnp.where(usable, integral, memory.integral), jnp.where(usable, multiplier, memory.multiplier)
    )
