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
from jaxtyping import Array, Float, Int, Key, Num

from canary.environments.numbers import run_time_numbers, with_numbers
from canary.environments.protocol import Environment, filmed
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

    An episode in which the policy saw an observation that is none, or absurdly large, is not
    `valid`. Where a lane is dear (`most_lanes`), the keys are played in several rounds of so many.
    """
    rounds = in_rounds(environment, keys)
    if len(rounds) > 1:
        ends = jax.lax.map(
            lambda some: play_episodes(
                environment, account, policy, statistics, some, deterministic=deterministic
            ),
            rounds,
        )
        return jax.tree.map(lambda leaf: leaf.reshape(-1)[: len(keys)], ends)
    lanes, move = _start(environment, account, policy, statistics, keys, deterministic)

    def unfinished(carry: tuple[Lane, jax.Array]):
        lanes, time = carry
        return ~_done(lanes).all() & (time <= environment.horizon)

    def play(carry: tuple[Lane, jax.Array]):
        lanes, time = carry
        return move(lanes, time), time + 1

    lanes, _ = jax.lax.while_loop(unfinished, play, (lanes, jnp.zeros((), jnp.int32)))
    return _ends(lanes)


def in_rounds(
    environment: Environment, keys: Key[Array, "episode"]
) -> Key[Array, "round episode_of_round"]:
    """The keys that are played together, in order; the last round begins anew with the first keys
    where too few are left."""
    most = min(getattr(environment, "most_lanes", len(keys)), len(keys))
    rounds = -(-len(keys) // most)
    return keys[jnp.arange(rounds * most) % len(keys)].reshape(rounds, most)


def make_player(
    environment: Environment, account: CostAccount, *, deterministic: bool = False
) -> Callable[[Policy, RunningStatistics | None, Key[Array, "episode"]], EpisodeEnds]:
    """`play_episodes` as a compiled program, which gets the limit and the numeric settings when it
    runs: as in training, another number needs no other program."""

    @jax.jit
    def play(
        numbers: dict[str, Num[Array, ""]],
        limit: Float[Array, ""],
        policy: Policy,
        statistics: RunningStatistics | None,
        keys: Key[Array, "episode"],
    ) -> EpisodeEnds:
        return play_episodes(
            with_numbers(environment, numbers),
            replace(account, limit=limit),
            policy,
            statistics,
            keys,
            deterministic=deterministic,
        )

    return partial(play, run_time_numbers(environment), account.limit)


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


def film_episodes(
    environment: Environment,
    account: CostAccount,
    policy: Policy,
    statistics: RunningStatistics | None,
    keys: Key[Array, "episode"],
    chosen: Int[Array, ""],
    *,
    deterministic: bool = False,
) -> tuple[EpisodeEnds, Lane]:
    """`play_episodes`, and every state of the episode `chosen` at times 0, ..., horizon.

    States after the end of that episode mean nothing. Two programs may round differently, and in a
    chaotic environment the last digit grows into another episode. So whoever wants to film one of
    the evaluated episodes evaluates with this program, and calls it again with the same keys.
    """
    rounds = in_rounds(environment, keys)
    turn, place = jnp.divmod(chosen, rounds.shape[1])

    def pick(lanes: Lane) -> Lane:
        one = jax.tree.map(lambda leaf: leaf[place], lanes)
        return replace(one, environment=filmed(environment, one.environment))

    def play_round(some: Key[Array, "episode"]) -> tuple[EpisodeEnds, Lane]:
        lanes, move = _start(environment, account, policy, statistics, some, deterministic)

        def play(carry: tuple[Lane, Lane, jax.Array]):
            lanes, film, time = carry
            lanes = move(lanes, time)
            film = jax.tree.map(lambda all, now: all.at[time + 1].set(now), film, pick(lanes))
            return lanes, film, time + 1

        def unfinished(carry: tuple[Lane, Lane, jax.Array]):
            return ~_done(carry[0]).all() & (carry[2] <= environment.horizon)

        film = jax.tree.map(
            lambda leaf: jnp.broadcast_to(leaf, (environment.horizon + 1, *leaf.shape)), pick(lanes)
        )
        start = lanes, film, jnp.zeros((), jnp.int32)
        lanes, film, _ = jax.lax.while_loop(unfinished, play, start)
        return _ends(lanes), film

    ends, films = jax.lax.map(play_round, rounds)
    ends = jax.tree.map(lambda leaf: leaf.reshape(-1)[: len(keys)], ends)
    return ends, jax.tree.map(lambda leaf: leaf[turn], films)


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


def _ends(lanes: Lane) -> EpisodeEnds:
    return EpisodeEnds(
        _done(lanes),
        lanes.valid,
        lanes.reward,
        lanes.spent,
        lanes.length,
        lanes.environment.terminated,
    )


def _done(lanes: Lane):
    return lanes.environment.terminated | lanes.environment.truncated
