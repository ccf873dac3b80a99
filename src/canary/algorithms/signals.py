"""Advantages and cost statistics that several algorithms share."""

from collections.abc import Sequence

import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from canary.algorithms.base import EstimationConfig
from canary.numerics.advantages import generalised_advantages
from canary.numerics.moments import EpisodeWindow, cost_moments, recent
from canary.numerics.risk import violation_rate
from canary.types import Metrics, Rollout

Steps = Float[Array, "time env"]


def reward_advantages(
    rollout: Rollout, value: Steps, next_value: Steps, config: EstimationConfig
) -> tuple[Steps, Steps]:
    """GAE and critic target of the reward, which bootstraps at a truncation."""
    return generalised_advantages(
        rollout.reward, value, next_value, stops=rollout.terminated, done=rollout.done,
        discount=config.reward_discount, decay=config.gae_lambda,
    )  # fmt: skip


def cost_advantages(
    rollout: Rollout,
    signal: Steps,
    value: Steps,
    next_value: Steps,
    *,
    discount: float,
    decay: float,
) -> tuple[Steps, Steps]:
    """GAE and critic target of a cost-type signal, which ends with the episode."""
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


def numbered(metrics: Sequence[Metrics]) -> Metrics:
    """The metrics of several costs in one dictionary, with the number of the cost, from 1."""
    return {
        f"{name}_{index + 1}": value
        for index, each in enumerate(metrics)
        for name, value in each.items()
    }


def episode_metrics(
    window: EpisodeWindow, estimation: EstimationConfig, limit: ArrayLike
) -> Metrics:
    """What the recent episodes cost, in raw units; NaN without any."""
    limits = jnp.asarray(limit)
    if limits.ndim:
        pairs = zip(window.by_cost(), limits, strict=True)
        return numbered([episode_metrics(each, estimation, own) for each, own in pairs])
    episodes = estimation.window
    moments = cost_moments(window, episodes, limit)
    rate = violation_rate(window.cost, limit, recent(window, episodes))
    return {
        "cost_mean": moments.mean * limit,
        "cost_deviation": jnp.sqrt(moments.variance) * limit,
        "violation_estimate": jnp.where(moments.count > 0, rate, jnp.nan),
        "window_episodes": moments.count,
    }
