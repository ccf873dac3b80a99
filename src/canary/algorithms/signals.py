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
    """GAE and critic target of the reward, whose value goes on past a truncation."""
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
    """GAE and critic target of a cost-type signal: a sum over the episode as it was played, so it
    ends with it."""
    return generalised_advantages(
        signal,
        value,
        next_value,
        stops=rollout.done,
        done=rollout.done,
        discount=discount,
        decay=decay,
    )


def tail_advantages(
    rollout: Rollout, value: Steps, next_value: Steps, threshold: Float[Array, ""], decay: float
) -> Steps:
    """GAE of the tail excess (C - threshold)+, which is paid once, when the episode ends,
    undiscounted.

    `value` estimates E[(C - threshold)+ | x_t] with the spent cost inside it: single steps cost
    nothing.
    """
    excess = jnp.maximum(spent_after(rollout) - threshold, 0)
    return cost_advantages(
        rollout, excess * rollout.done, value, next_value, discount=1.0, decay=decay
    )[0]


def breach_indicator(
    rollout: Rollout, limit: ArrayLike, *, at_end: bool = False
) -> Float[Array, "time env"]:
    """1 for the step that takes the episode over the limit or, `at_end`, for the last step of one
    that is over it. Compared in raw units, so that no rounding can flip a tie."""
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
    """What the recent episodes cost, in raw units; not a number while there is none."""
    limits = jnp.asarray(limit)
    if limits.ndim:
        pairs = zip(window.by_cost(), limits, strict=True)
        return numbered([episode_metrics(each, estimation, own) for each, own in pairs])
    span = estimation.span
    moments = cost_moments(window, span, limit)
    rate = violation_rate(window.cost, limit, recent(window, span))
    return {
        "cost_mean": moments.mean * limit,
        "cost_deviation": jnp.sqrt(moments.variance) * limit,
        "violation_estimate": jnp.where(moments.count > 0, rate, jnp.nan),
        "window_episodes": moments.count,
    }
