"""A batch with the predictions of the critics, and its advantages.

Generalised advantage estimation (GAE) works for any signal f of a step:

    delta_t = f_t + gamma * V(x_{t+1}) * (1 - stops_t) - V(x_t)
    A_t     = delta_t + gamma * lambda * (1 - done_t) * A_{t+1}

A cost return ends at termination and at truncation, a reward return at termination only. At the
end of the rollout both bootstrap from the last state.
"""

from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Float

from canary.algorithms.base import EstimationConfig
from canary.networks import MLP, critic_values
from canary.numerics.costs import EpisodeWindow
from canary.types import Rollout

Steps = Float[Array, "time env"]
Values = Float[Array, "critic time env"]


@dataclass(frozen=True)
class Batch:
    """A batch as a method sees it, with costs in units of the limit."""

    rollout: Rollout
    reward: tuple[Steps, Steps]
    """Advantage of the reward, and the target of its critic."""
    values: Values
    """V(x_t) of each critic: the reward critic first, unless the batch is made for one constraint."""
    next_values: Values
    """V(x_{t+1})."""
    window: EpisodeWindow
    """Recent episodes."""

    def by_cost(self) -> "list[Batch]":
        """A batch for each cost."""
        pairs = zip(self.rollout.by_cost(), self.window.by_cost(), strict=True)
        return [replace(self, rollout=rollout, window=window) for rollout, window in pairs]


def batch_of(
    critics: MLP, rollout: Rollout, window: EpisodeWindow, config: EstimationConfig
) -> Batch:
    """The batch with the values of stacked critics. The reward bootstraps at a truncation."""
    values = critic_values(critics, rollout.inputs)
    next_values = critic_values(critics, rollout.next_inputs)
    reward = generalised_advantages(
        rollout.reward, values[0], next_values[0], stops=rollout.terminated, done=rollout.done,
        discount=config.reward_discount, decay=config.gae_lambda,
    )  # fmt: skip
    return Batch(rollout, reward, values, next_values, window)


def cost_advantages(
    rollout: Rollout,
    signal: Steps,
    value: Steps,
    next_value: Steps,
    *,
    discount: float,
    decay: float,
) -> tuple[Steps, Steps]:
    """GAE and critic target of a cost-type signal, whose return ends with the episode."""
    done = rollout.done
    return generalised_advantages(
        signal, value, next_value, stops=done, done=done, discount=discount, decay=decay
    )


def tail_advantages(
    rollout: Rollout, value: Steps, next_value: Steps, threshold: Float[Array, ""], decay: float
) -> Steps:
    """GAE of the tail excess (C - threshold)+, which is paid undiscounted at the end of the
    episode; `value` estimates E[(C - threshold)+ | x_t]."""
    excess = jnp.maximum(spent_after(rollout) - threshold, 0)
    return cost_advantages(
        rollout, excess * rollout.done, value, next_value, discount=1.0, decay=decay
    )[0]


def generalised_advantages(
    signal: Steps,
    value: Steps,
    next_value: Steps,
    *,
    stops: Bool[Array, "time env"],
    done: Bool[Array, "time env"],
    discount: float,
    decay: float,
    target_decay: float | None = None,
) -> tuple[Steps, Steps]:
    """GAE of `signal` with lambda = `decay`, and the lambda-return A + V that its critic learns,
    with lambda = `target_decay` if given.

    There is no bootstrap after a step that `stops`; `done` marks the last step of an episode.
    """
    residual = signal + discount * next_value * ~stops - value
    fades = discount * jnp.array([decay, decay if target_decay is None else target_decay])[:, None]

    def backwards(later: Float[Array, "2 env"], step: tuple[Array, Array]):
        residual_t, done_t = step
        advantage = residual_t + fades * later * ~done_t
        return advantage, advantage

    start = jnp.zeros((2, *residual.shape[1:]), residual.dtype)
    _, both = jax.lax.scan(backwards, start, (residual, done), reverse=True)
    return both[:, 0], both[:, 1] + value


def breach_indicator(
    rollout: Rollout, limit: ArrayLike, *, at_end: bool = False
) -> Float[Array, "time env"]:
    """1 for the step that takes the episode over the limit or, `at_end`, for the last step of such
    an episode. Compared in raw units, so that no rounding can flip a tie."""
    over = rollout.episodes.cost > limit
    pays = over & (rollout.done if at_end else rollout.spent_raw <= limit)
    return pays.astype(rollout.cost.dtype)


def spent_after(rollout: Rollout) -> Steps:
    """y_{t+1} = y_t + g_t c_t, which at the end of an episode is its cost C."""
    return rollout.spent + rollout.discount * rollout.cost


def standardised(advantage: Float[Array, "*batch"]) -> Float[Array, "*batch"]:
    return (advantage - advantage.mean()) / (advantage.std() + 1e-8)


def centred(
    advantage: Float[Array, "*batch"], weight: Float[Array, "*batch"]
) -> Float[Array, "*batch"]:
    """The advantage minus its weighted mean, not rescaled: a cost-type advantage has units."""
    return advantage - (weight * advantage).sum() / weight.sum()
