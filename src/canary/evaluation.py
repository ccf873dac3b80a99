"""Whole episodes of a frozen policy: one episode per key, all in parallel, each from a fresh reset to its own end.

One episode per key, rather than the first so many that end, because short episodes end first and would be overcounted.
"""

import jax
import jax.numpy as jnp
from jaxtyping import PRNGKeyArray

from canary.environments.protocol import Environment
from canary.networks import Policy
from canary.numerics.running_statistics import RunningStatistics
from canary.rollout import Augmentation, Lane, advance, see, select, start_lane
from canary.types import EpisodeEnds


def play_episodes(
    environment: Environment,
    augmentation: Augmentation,
    policy: Policy,
    statistics: RunningStatistics | None,
    keys: PRNGKeyArray,
    *,
    deterministic: bool = False,
) -> EpisodeEnds:
    """One episode per key, sampling actions as in training or, if `deterministic`, taking the most likely ones."""
    split = jax.vmap(lambda key: jax.random.split(key, 3))(keys)
    lanes = jax.vmap(lambda key: start_lane(environment, key))(split[:, 0])
    key_act, key_step = split[:, 1], split[:, 2]

    def unfinished(carry: tuple[Lane, jax.Array]):
        lanes, time = carry
        return ~_done(lanes).all() & (time <= environment.horizon)

    def play(carry: tuple[Lane, jax.Array]):
        lanes, time = carry
        distribution = policy(see(lanes, augmentation, statistics))
        if deterministic:
            action = distribution.mode()
        else:
            action = jax.vmap(lambda d, key: d.sample(jax.random.fold_in(key, time)))(distribution, key_act)
        moved = jax.vmap(
            lambda lane, a, key: advance(environment, augmentation, lane, a, jax.random.fold_in(key, time))
        )(lanes, action, key_step)
        return select(_done(lanes), lanes, moved), time + 1

    lanes, _ = jax.lax.while_loop(unfinished, play, (lanes, jnp.zeros((), jnp.int32)))
    return EpisodeEnds(
        _done(lanes), lanes.valid, lanes.reward, lanes.spent, lanes.length, lanes.environment.terminated
    )


def _done(lanes: Lane):
    return lanes.environment.terminated | lanes.environment.truncated
