"""CPPO: CVaR-constrained PPO by a Lagrangian (Ying et al., 2022), as a penalty on the advantage.

    maximise J(pi) - lambda * (CVaR_eps(C) - l),       CVaR_eps(C) = min_eta eta + E[(C - eta)+] / eps

G_t = y_t + g_t V^C(x_t) predicts the cost of the whole episode at step t. The policy follows A -
penalty with

    state   penalty_t = lambda / eps * (G_t - eta)+                          as published
    post    penalty_t = lambda / eps * GAE of the tail excess (G - eta)+     for the Lagrangian

The first depends on the state alone, as a baseline does, so its expected policy gradient is zero
and the constraint has no effect. The second depends on the action. A proportional-integral controller
of the error e = CVaR - l in raw cost units sets the multiplier (paper tab:baseline-hyperparams):

    I <- clip(I + step * e, 0, cap),      lambda = clip(I + k_p * e, 0, cap)
"""

from dataclasses import dataclass, field
from typing import ClassVar, Literal

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from canary.algorithms.advantages import Batch, cost_advantages, spent_after, tail_advantages
from canary.algorithms.base import Algorithm, EstimationConfig, Task
from canary.algorithms.clipped import (
    ClippedConfig,
    ClippedMethod,
    Objective,
    Standardise,
    clipped_algorithm,
)
from canary.constraints import Kind
from canary.numerics.costs import EpisodeWindow, recent
from canary.numerics.risk import conditional_value_at_risk, value_at_risk
from canary.types import Terms
from canary.values import Amount, Positive, Settings

Steps = Float[Array, "time env"]
MULTIPLIER_CAP = 4000.0  # the largest multiplier; the paper states one only for EcoAnt


@dataclass(frozen=True, kw_only=True)
class CPPOConfig(Settings):
    """Settings of CPPO; those the paper states per environment are in `config/presets.py`."""

    estimation: EstimationConfig = field(default_factory=EstimationConfig)
    clipped: ClippedConfig = field(default_factory=ClippedConfig)
    penalty: Literal["state", "post"] = "state"
    """`state`: the published penalty, whose expected gradient is zero. `post`: a penalty on the
    actions that caused the cost."""
    multiplier_init: Amount = 1.0
    """Lagrange multiplier at the start."""
    multiplier_step: Amount = 0.03
    """Integral gain: increase of the multiplier per update for each unit of excess cost."""
    proportional_gain: Amount = 15.0
    """Proportional gain k_p."""
    cvar_clip_ratio: Positive = 300.0
    """Largest penalty, as a multiple of the reward value |V(x_t)|."""
    standardise: Standardise = "batch"
    """Samples over which the penalised advantage is standardised."""

    serves: ClassVar[tuple[Kind, ...]] = ("chance", "cvar")

    def make(self, task: Task) -> Algorithm:
        observed = self.estimation.observe_spent
        start = jnp.clip(jnp.asarray(self.multiplier_init), 0, MULTIPLIER_CAP)
        method = ClippedMethod(
            critics=1,
            observe_spent=self.penalty == "post" if observed is None else observed,
            memory=Controller(start, start),
            standardise=self.standardise,
            objective=penalised_objective(self),
        )
        return clipped_algorithm(method, task, self.estimation, self.clipped)


class Controller(eqx.Module):
    integral: Float[Array, ""]
    multiplier: Float[Array, ""]


def penalised_objective(config: CPPOConfig):
    """The reward minus the tail penalty, with the multiplier from before this batch."""
    estimation = config.estimation

    def objective(batch: Batch, terms: Terms, memory: Controller) -> Objective:
        rollout, window = batch.rollout, batch.window
        values, next_values = batch.values, batch.next_values
        epsilon, limit = terms.epsilon, terms.limit
        reward_advantage, reward_target = batch.reward
        predicted = rollout.spent + rollout.discount * values[1]
        eta = value_at_risk(predicted.reshape(-1), epsilon)
        cvar = tail_mean(window, estimation.window, predicted, terms)

        tail = jnp.maximum(predicted - eta, 0)
        if config.penalty == "post":
            after = (
                spent_after(rollout) + estimation.cost_discount * rollout.discount * next_values[1]
            )
            tail = tail_advantages(
                rollout, tail, jnp.maximum(after - eta, 0), eta, estimation.gae_lambda
            )
        largest = config.cvar_clip_ratio * jnp.abs(values[0])
        penalty = jnp.clip(memory.multiplier / epsilon * tail * limit, -largest, largest)

        error = (cvar - 1) * limit
        ready = window.total >= estimation.warmup_episodes
        _, cost_target = cost_advantages(
            rollout, rollout.cost, values[1], next_values[1],
            discount=estimation.cost_discount, decay=estimation.gae_lambda,
        )  # fmt: skip
        return Objective(
            advantage=reward_advantage - jnp.where(jnp.isfinite(penalty), penalty, 0),
            targets=jnp.stack([reward_target, cost_target]),
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


def tail_mean(
    window: EpisodeWindow, episodes: int, predicted: Steps, terms: Terms
) -> Float[Array, ""]:
    """CVaR in units of the limit: of the recent episodes if there are at least 1 / epsilon, else of
    the predictions."""
    valid = recent(window, episodes)
    of_episodes = conditional_value_at_risk(window.cost / terms.limit, terms.epsilon, valid)
    of_predictions = conditional_value_at_risk(predicted.reshape(-1), terms.epsilon)
    return jnp.where(jnp.sum(valid) * terms.epsilon >= 1 - 1e-6, of_episodes, of_predictions)


def control(
    memory: Controller, error: Float[Array, ""], ready: Bool[Array, ""], config: CPPOConfig
) -> Controller:
    """The next multiplier; unchanged until enough episodes have ended."""
    integral = jnp.clip(memory.integral + config.multiplier_step * error, 0, MULTIPLIER_CAP)
    multiplier = jnp.clip(integral + config.proportional_gain * error, 0, MULTIPLIER_CAP)
    usable = ready & jnp.isfinite(error)
    return Controller(
        jnp.where(usable, integral, memory.integral),
        jnp.where(usable, multiplier, memory.multiplier),
    )
