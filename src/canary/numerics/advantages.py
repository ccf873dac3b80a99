"""Generalised advantage estimation (GAE) for any per-step signal.

    delta_t = f_t + gamma * V(x_{t+1}) * (1 - stops_t) - V(x_t)
    A_t     = delta_t + gamma * lambda * (1 - done_t) * A_{t+1}

A cost return is a sum over the episode as it was played: it stops at termination and at truncation.
The reward return stops at termination only. At the end of the rollout both bootstrap from the last
state.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float


def generalised_advantages(
    signal: Float[Array, "time env"],
    value: Float[Array, "time env"],
    next_value: Float[Array, "time env"],
    *,
    stops: Bool[Array, "time env"],
    done: Bool[Array, "time env"],
    discount: float,
    decay: float,
    target_decay: float | None = None,
) -> tuple[Float[Array, "time env"], Float[Array, "time env"]]:
    """GAE of `signal` with lambda = `decay`, and the lambda-return that its critic should learn,
    with its own lambda if one is given.

    `stops` marks steps after which there is no bootstrap, `done` the ends of episodes.
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


def standardised(advantage: Float[Array, "*batch"]) -> Float[Array, "*batch"]:
    return (advantage - advantage.mean()) / (advantage.std() + 1e-8)


def centred(
    advantage: Float[Array, "*batch"], weight: Float[Array, "*batch"]
) -> Float[Array, "*batch"]:
    """Without its weighted mean. It is not rescaled: a cost-type advantage carries units."""
    return advantage - (weight * advantage).sum() / weight.sum()
