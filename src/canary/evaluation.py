"""Whole episodes of a frozen policy: one episode per key, all in parallel, each from a fresh reset
to its own end.

One episode per key, rather than the first so many that end, because short episodes end first and
would be overcounted.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from canary.environments.host_environment import HostEnvironment
from canary.environments.protocol import Environment
from canary.host_loop import HostPlayer
from canary.networks import Policy
from canary.numerics.running_statistics import RunningStatistics
from canary.numerics.sanity import sane
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
    """One episode per key, sampling actions as in training or, if `deterministic`, taking the most
    likely ones.

    An episode in which the policy saw an observation that is not finite, or absurdly large, is not
    `valid`.
    """
    lanes, move = _start(environment, account, policy, statistics, keys, deterministic)

    def unfinished(carry: tuple[Lane, jax.Array]):
        lanes, time = carry
        return ~_done(lanes).all() & (time <= environment.horizon)

    def play(carry: tuple[Lane, jax.Array]):
        lanes, time = carry
        return move(lanes, time), time + 1

    lanes, _ = jax.lax.while_loop(unfinished, play, (lanes, jnp.zeros((), jnp.int32)))
    return EpisodeEnds(
        _done(lanes),
        lanes.valid,
        lanes.reward,
        lanes.spent,
        lanes.length,
        lanes.environment.terminated,
    )


Player = Callable[[Policy, RunningStatistics | None, Key[Array, "episode"]], EpisodeEnds]


def make_player(
    environment: Environment, account: CostAccount, *, deterministic: bool = False
) -> Player:
    """A function that plays one episode per key. It is compiled once for all limits, and for a host
    environment it is a Python loop."""
    if isinstance(environment, HostEnvironment):
        return HostPlayer(environment, account, deterministic=deterministic).play

    @jax.jit
    def play(
        limit: Float[Array, ""],
        policy: Policy,
        statistics: RunningStatistics | None,
        keys: Key[Array, "episode"],
    ) -> EpisodeEnds:
        return play_episodes(
            environment,
            replace(account, limit=limit),
            policy,
            statistics,
            keys,
            deterministic=deterministic,
        )

    return partial(play, account.limit)


def absurd_numbers(ends: EpisodeEnds) -> tuple[int, str] | None:
    """The first episode with a number that is not finite, or absurdly large, and in words what is.

    All of it is named: a cost that is no number spoils the next action, and that the next
    observation, or the reverse.
    """
    bad = {
        "a cost": ~sane(ends.cost),
        "a return": ~sane(ends.reward),
        "an observation": ~ends.valid,
    }
    where = np.any([np.asarray(each) for each in bad.values()], axis=0)
    if not where.any():
        return None
    first = int(where.argmax())
    found = [name for name, each in bad.items() if each[first]]
    verb = "is" if len(found) == 1 else "are"
    return first, f"{' and '.join(found)} that {verb} not finite, or absurdly large"


def make_film(
    environment: Environment, account: CostAccount, *, length: int, deterministic: bool = False
) -> Callable[[Policy, RunningStatistics | None, Key[Array, "episode"], int], Lane]:
    """A function that plays the episodes of some keys again and returns every state of the chosen
    one, at times 0, 1, ..., up to `length`.

    The keys are those of a whole batch: a batch of another size may be rounded differently, and in
    a chaotic environment the last digit grows into another episode.
    """
    if isinstance(environment, HostEnvironment):
        return HostPlayer(environment, account, deterministic=deterministic).film

    @jax.jit
    def film(
        policy: Policy,
        statistics: RunningStatistics | None,
        keys: Key[Array, "episode"],
        chosen: Int[Array, ""],
    ) -> Lane:
        lanes, move = _start(environment, account, policy, statistics, keys, deterministic)

        def pick(lanes: Lane) -> Lane:
            return jax.tree.map(lambda leaf: leaf[chosen], lanes)

        def play(lanes: Lane, time: jax.Array):
            lanes = move(lanes, time)
            return lanes, pick(lanes)

        _, moved = jax.lax.scan(play, lanes, jnp.arange(length, dtype=jnp.int32))
        return jax.tree.map(
            lambda start, later: jnp.concatenate([start[None], later]), pick(lanes), moved
        )

    return film


def _start(
    environment: Environment,
    account: CostAccount,
    policy: Policy,
    statistics: RunningStatistics | None,
    keys: Key[Array, "episode"],
    deterministic: bool,
) -> tuple[Lane, Callable[[Lane, jax.Array], Lane]]:
    """A fresh lane per key, and the function that moves every lane that is not done by one step."""
    split = jax.vmap(lambda key: jax.random.split(key, 3))(keys)
    lanes = jax.vmap(lambda key: start_lane(environment, key))(split[:, 0])
    key_act, key_step = split[:, 1], split[:, 2]

    def move(lanes: Lane, time: jax.Array) -> Lane:
        # An action chosen by what is no number proves nothing: such an episode does not count.
        seen = sane(lanes.environment.observation).all(-1)
        lanes = eqx.tree_at(lambda lane: lane.valid, lanes, lanes.valid & (seen | _done(lanes)))
        distribution = policy(lanes.inputs(account, statistics))
        if deterministic:
            action = distribution.mode()
        else:
            action = jax.vmap(lambda d, key: d.sample(jax.random.fold_in(key, time)))(
                distribution, key_act
            )
        moved = jax.vmap(
            lambda lane, a, key: advance(
                environment, account, lane, a, jax.random.fold_in(key, time)
            )
        )(lanes, action, key_step)
        return select(_done(lanes), lanes, moved)

    return lanes, move


def _done(lanes: Lane):
    return lanes.environment.terminated | lanes.environment.truncated
