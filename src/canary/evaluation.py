"""Whole episodes of a frozen policy: one per key, in parallel, each from a fresh reset to its end.

The first episodes to end would be the short ones; one episode per key counts all alike.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from canary.environments.gymnasium_environment import GymnasiumEnvironment
from canary.environments.protocol import Environment
from canary.errors import CanaryError
from canary.host_loop import HostPlayer
from canary.networks import Policy
from canary.numerics.running_statistics import RunningStatistics, sane
from canary.rollout import CostAccount, Lane, advance, select, start_lane
from canary.types import EpisodeEnds


def play_episodes(
    environment: Environment,
    account: CostAccount,
    policy: Policy,
    statistics: RunningStatistics | None,
    keys: Key[Array, "episode"],
    *,
    deterministic: bool = False,
) -> EpisodeEnds:
    """One episode per key, with sampled actions or, if `deterministic`, the most likely ones. It is
    not `valid` if the policy saw an observation that is not sane."""
    return _play(environment, account, deterministic, policy, statistics, keys)[0]


def _play(
    environment: Environment,
    account: CostAccount,
    deterministic: bool,
    policy: Policy,
    statistics: RunningStatistics | None,
    keys: Key[Array, "episode"],
    chosen: Int[Array, ""] | None = None,
) -> tuple[EpisodeEnds, Lane | None]:
    """The ends of the episodes, and every state of the chosen one."""
    split = jax.vmap(lambda key: jax.random.split(key, 3))(keys)
    lanes = jax.vmap(lambda key: start_lane(environment, key))(split[:, 0])
    key_act, key_step = split[:, 1], split[:, 2]

    def step(lane: Lane, action: Array, key: Array, time: jax.Array) -> Lane:
        return advance(environment, account, lane, action, jax.random.fold_in(key, time))

    def move(lanes: Lane, time: jax.Array) -> Lane:
        """Every lane that is not done, by one step."""
        seen = sane(lanes.environment.observation).all(-1)
        lanes = eqx.tree_at(lambda lane: lane.valid, lanes, lanes.valid & (seen | _done(lanes)))
        distribution = policy(lanes.inputs(account, statistics))
        if deterministic:
            action = distribution.mode()
        else:
            action = jax.vmap(lambda d, key: d.sample(jax.random.fold_in(key, time)))(
                distribution, key_act
            )
        moved = jax.vmap(step, (0, 0, 0, None))(lanes, action, key_step, time)
        return select(_done(lanes), lanes, moved)

    def pick(lanes: Lane) -> Lane | None:
        return None if chosen is None else jax.tree.map(lambda leaf: leaf[chosen], lanes)

    def unfinished(carry: tuple[Lane, Lane | None, jax.Array]):
        return ~_done(carry[0]).all() & (carry[2] <= environment.horizon)

    def play(carry: tuple[Lane, Lane | None, jax.Array]):
        lanes, film, time = carry
        lanes = move(lanes, time)
        film = jax.tree.map(lambda all_, now: all_.at[time + 1].set(now), film, pick(lanes))
        return lanes, film, time + 1

    film = jax.tree.map(
        lambda leaf: jnp.broadcast_to(leaf, (environment.horizon + 1, *leaf.shape)), pick(lanes)
    )
    start = lanes, film, jnp.zeros((), jnp.int32)
    lanes, film, _ = jax.lax.while_loop(unfinished, play, start)
    return lanes.ends, film


def _done(lanes: Lane) -> jax.Array:
    return lanes.environment.terminated | lanes.environment.truncated


Player = Callable[[Policy, RunningStatistics | None, Key[Array, "episode"]], EpisodeEnds]


def make_player(
    environment: Environment, account: CostAccount, *, deterministic: bool = False
) -> Player:
    """A function that plays one episode per key, compiled once for all limits; a Python loop for a
    host environment."""
    if isinstance(environment, GymnasiumEnvironment):
        return HostPlayer(environment, account, deterministic=deterministic).play

    @jax.jit
    def play(
        limit: Float[Array, "..."],
        policy: Policy,
        statistics: RunningStatistics | None,
        keys: Key[Array, "episode"],
    ) -> EpisodeEnds:
        own = replace(account, limit=limit)
        return play_episodes(
            environment, own, policy, statistics, keys, deterministic=deterministic
        )

    return partial(play, account.limit)


def refuse_faulty(
    ends: EpisodeEnds, name: Callable[[int], str] = lambda index: "An episode"
) -> None:
    """Raise a sentence about the first episode that did not end, or that has a number that is not
    sane: NaN > limit is false, so it would pass for a safe one."""
    late = ~np.asarray(ends.ended)
    bad = {
        "a cost": ~sane(ends.cost.reshape(len(ends.ended), -1)).all(1),
        "a return": ~sane(ends.reward),
        "an observation": ~np.asarray(ends.valid),
    }
    where = np.any([late, *bad.values()], axis=0)
    if not where.any():
        return
    first = int(where.argmax())
    found = [what for what, each in bad.items() if each[first]]
    are = "is" if len(found) == 1 else "are"
    fault = f"has {' and '.join(found)} that {are} not finite, or absurdly large"
    fault = "did not end within the horizon" if late[first] else fault
    raise CanaryError(f"{name(first)} {fault}; repair the environment.")


class Recorder(NamedTuple):
    """Plays episodes, and films one of them."""

    play: Player
    film: Callable[[Policy, RunningStatistics | None, Key[Array, "episode"], int], Lane]
    """Every state of the chosen episode of these keys, at times 0, ..., horizon. States after its
    end mean nothing."""


def make_recorder(
    environment: Environment, account: CostAccount, *, deterministic: bool = False
) -> Recorder:
    """One program for both: two may round differently, and chaos turns that into another
    episode."""
    if isinstance(environment, GymnasiumEnvironment):
        player = HostPlayer(environment, account, deterministic=deterministic)
        return Recorder(player.play, player.film)
    record = jax.jit(partial(_play, environment, account, deterministic))
    return Recorder(
        lambda *inputs: record(*inputs, jnp.asarray(0))[0],
        lambda *inputs: record(*inputs[:3], jnp.asarray(inputs[3]))[1],
    )
