"""Whole episodes of a frozen policy in an environment outside JAX, by a plain Python loop around a
compiled `act`. See `evaluation`, which does the same inside one program."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key, UInt32

from canary.environments.gymnasium_environment import (
    GymnasiumEnvironment,
    draw_identities,
    states_of,
)
from canary.host.episodes import (
    DISCOUNT,
    LENGTH,
    RETURN,
    REWARD,
    SPENT,
    TERMINATED,
    TRUNCATED,
    VALID,
    Episodes,
)
from canary.networks import Policy
from canary.numerics.running_statistics import RunningStatistics
from canary.numerics.sanity import sane
from canary.rollout import CostAccount, Lane
from canary.types import EpisodeEnds

MOST_LANES = 64  # episodes that are played at once: each is a whole environment


class FilmedState(NamedTuple):
    """What a film keeps of each moment: the episode, and the action that led there."""

    identity: UInt32[np.ndarray, "time 2"]
    action: Float[np.ndarray, "time action"]


def lanes_of(table: Float[Array, "*batch column"], inner: Any = None) -> Lane:
    """The lanes that a table of `Episodes` describes."""
    return Lane(
        environment=states_of(table, inner),
        spent=table[..., SPENT],
        discount=table[..., DISCOUNT],
        reward=table[..., RETURN],
        length=table[..., LENGTH].astype(jnp.int32),
        valid=table[..., VALID] > 0,
    )


def table_of(lanes: Lane) -> Float[np.ndarray, "lane column"]:
    """The inverse of `lanes_of`."""
    state = lanes.environment
    columns = (
        state.reward, state.cost, state.terminated, state.truncated, state.time,
        lanes.spent, lanes.discount, lanes.reward, lanes.length, lanes.valid,
    )  # fmt: skip
    rows = [np.asarray(state.observation), *(np.asarray(each)[:, None] for each in columns)]
    return np.concatenate(rows, axis=1, dtype=np.float32)


class HostPlayer:
    """Whole episodes of a frozen policy on a host environment; see `evaluation.play_episodes`."""

    def __init__(
        self, environment: GymnasiumEnvironment, account: CostAccount, *, deterministic: bool
    ):
        self._environment, self._account = environment, account
        self._act = jax.jit(partial(_act_in_episodes, account, deterministic))
        self._draw = jax.jit(_draw_episodes)

    def play(
        self, policy: Policy, statistics: RunningStatistics | None, keys: Key[Array, "episode"]
    ) -> EpisodeEnds:
        """One episode per key."""
        most = min(MOST_LANES, len(keys))
        tables = []
        for first in range(0, len(keys), most):
            # A last round of fewer episodes uses the same program; the other lanes are not stepped.
            lanes = np.arange(min(most, len(keys) - first))
            round_ = keys[(first + jnp.arange(most)) % len(keys)]
            episodes = self._episodes(most)
            for _ in self._moves(policy, statistics, round_, lanes):
                pass
            tables.append(episodes.table[lanes])
        table = np.concatenate(tables)
        ended = table[:, [TERMINATED, TRUNCATED]].any(1)
        lanes = lanes_of(jnp.asarray(table))
        return EpisodeEnds(
            jnp.asarray(ended), lanes.valid, lanes.reward, lanes.spent, lanes.length,
            lanes.environment.terminated,
        )  # fmt: skip

    def film(
        self,
        policy: Policy,
        statistics: RunningStatistics | None,
        keys: Key[Array, "episode"],
        chosen: int,
    ) -> Lane:
        """Every state of one of these episodes: times 0, 1, ..., its length."""
        lane, most = chosen % MOST_LANES, min(MOST_LANES, len(keys))
        round_ = keys[(chosen - lane + jnp.arange(most)) % len(keys)]
        episodes, tables, actions = self._episodes(most), [], []
        for _ in self._moves(policy, statistics, round_, np.array([lane])):
            tables.append(episodes.table[lane].copy())
            actions.append(episodes.actions[lane, max(episodes.steps[lane] - 1, 0)].copy())
        inner = FilmedState(np.tile(episodes.identity[lane], (len(tables), 1)), np.stack(actions))
        return jax.tree.map(np.asarray, lanes_of(jnp.asarray(np.stack(tables)), inner))

    def _moves(
        self, policy: Policy, statistics: Any, keys: Any, lanes: np.ndarray
    ) -> Iterator[Any]:
        identity, keys_act = self._draw(keys)
        limit = jnp.float32(self._account.limit)
        episodes = self._episodes(len(keys))

        def choose(time: int) -> np.ndarray:
            # An action chosen from a non-finite observation is not valid.
            table = episodes.table
            table[:, VALID] *= sane(table[:, :REWARD]).all(1) | episodes.done
            moment = np.int32(time)
            return np.asarray(self._act(policy, statistics, limit, table, keys_act, moment))

        discount = float(self._account.cost_discount)
        return episodes.play(lanes, np.asarray(identity)[lanes], choose, discount)

    def _episodes(self, lanes: int) -> Episodes:
        return self._environment.episodes(self, lanes)


def _draw_episodes(keys: Key[Array, "episode"]) -> Any:
    """Identities, and the keys of the actions."""
    split = jax.vmap(lambda key: jax.random.split(key, 3))(keys)
    return draw_identities(split[:, 0]), split[:, 1]


def _act_in_episodes(
    account: CostAccount,
    deterministic: bool,
    policy: Policy,
    statistics: RunningStatistics | None,
    limit: Float[Array, ""],
    table: Float[Array, "lane column"],
    keys: Key[Array, "lane"],
    time: Int[Array, ""],
) -> Array:
    distribution = policy(lanes_of(table).inputs(replace(account, limit=limit), statistics))
    if deterministic:
        return distribution.mode()
    return jax.vmap(lambda d, key: d.sample(jax.random.fold_in(key, time)))(distribution, keys)
