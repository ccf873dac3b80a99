"""Policies in environments outside JAX: a plain Python loop around compiled functions.

    act (compiled), step every lane (Python), act, step, ..., learn (compiled)

`HostTraining` trains with the keys, records and order of resets of `training.train_chunk`;
`HostPlayer` plays whole episodes of a frozen policy, as `evaluation` does inside one program. No
program calls back into Python, so JAX can cache all of them.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import PyTreeDef
from jaxtyping import Array, Bool, Float, Int, Key, PRNGKeyArray, UInt32

from canary.environments.gymnasium_environment import (
    GymnasiumEnvironment,
    HostState,
    draw_identities,
    states_of,
)
from canary.errors import CanaryError
from canary.host.episodes import (
    COLUMNS,
    DISCOUNT,
    LENGTH,
    RETURN,
    REWARD,
    SPENT,
    TERMINATED,
    TIME,
    TRUNCATED,
    VALID,
    Episodes,
)
from canary.networks import Policy
from canary.numerics.running_statistics import RunningStatistics, sane
from canary.rollout import CostAccount, Lane, transition
from canary.training import Trainer, TrainingState, batch_keys, fresh_state, improve, seed_key
from canary.types import EpisodeEnds, Terms

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
        most, tables = min(MOST_LANES, len(keys)), []
        for first in range(0, len(keys), most):
            # A last round of fewer episodes uses the same program; the other lanes are not stepped.
            lanes = np.arange(min(most, len(keys) - first))
            round_ = keys[(first + jnp.arange(most)) % len(keys)]
            *_, episodes = self._moves(policy, statistics, round_, lanes)
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
        tables, actions, identity = [], [], []
        for episodes in self._moves(policy, statistics, round_, np.array([lane])):
            tables.append(episodes.table[lane].copy())
            actions.append(episodes.actions[lane, max(episodes.steps[lane] - 1, 0)].copy())
            identity.append(episodes.identity[lane].copy())
        inner = FilmedState(np.stack(identity), np.stack(actions))
        return jax.tree.map(np.asarray, lanes_of(jnp.asarray(np.stack(tables)), inner))

    def _moves(
        self, policy: Policy, statistics: Any, keys: Any, lanes: np.ndarray
    ) -> Iterator[Episodes]:
        """Play these lanes to the end of their episodes; yields the live episodes after the resets
        and after every step."""
        identity, keys_act = self._draw(keys)
        limit = jnp.float32(self._account.limit)
        episodes = self._environment.episodes(self, len(keys))

        def choose(time: int) -> np.ndarray:
            # An action chosen from a non-finite observation is not valid.
            table = episodes.table
            table[:, VALID] *= sane(table[:, :REWARD]).all(1) | episodes.done
            moment = np.int32(time)
            return np.asarray(self._act(policy, statistics, limit, table, keys_act, moment))

        discount = float(self._account.cost_discount)
        for _ in episodes.play(lanes, np.asarray(identity)[lanes], choose, discount):
            yield episodes


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


class HostTraining:
    """Training of one seed on a host environment."""

    def __init__(self, trainer: Trainer, options: dict[str, Any] | None):
        jit = partial(jax.jit, compiler_options=options)
        self._trainer = trainer
        assert isinstance(trainer.environment, GymnasiumEnvironment)
        self._environment = trainer.environment
        self._draw_start = jit(partial(_draw_start, trainer))
        self._draw_batch = jit(partial(_draw_batch, trainer))
        self._act: Callable[..., Any] = jit(partial(_act, trainer), static_argnums=0)
        self._fresh = jit(
            lambda terms, table, inner, keys: fresh_state(
                trainer, terms, lanes_of(table, inner), *keys
            )
        )
        self._learn = jit(partial(_learn, trainer))

    def init(self, terms: Terms, seed: Int[Array, ""]) -> TrainingState:
        identity, time, keys = self._draw_start(seed)
        episodes = self._episodes(keys[1])
        episodes.start(episodes.everyone, np.asarray(identity))
        episodes.table[:, TIME] = time = np.asarray(time)
        episodes.table[:, VALID] = time == 0
        return self._fresh(terms, *_arrays(episodes), keys)

    def structure(self, terms: Terms) -> Any:
        """Shapes and types of a state; no environment is reset."""
        first, lanes = self._environment.first, self._trainer.environments
        table = jnp.zeros((lanes, first.observation_size + COLUMNS))
        inner = HostState(
            identity=jnp.zeros((lanes, 2), jnp.uint32),
            steps=jnp.zeros(lanes, jnp.int32),
            actions=jnp.zeros((lanes, first.horizon, first.action_size)),
        )
        keys = jax.eval_shape(self._draw_start, jnp.zeros((), jnp.int32))[2]
        return jax.eval_shape(self._fresh, terms, table, inner, keys)

    def chunk(self, state: TrainingState, count: Any) -> tuple[TrainingState, Any]:
        """`count` updates, and their records along a first axis; 0 compiles what they need."""
        if not count:
            self._compile(state)
            return state, None
        records = []
        for _ in range(int(count)):
            state, record = self._learn(state, *self.collect(state))
            records.append(jax.tree.map(np.asarray, record))
        return state, jax.tree.map(lambda *each: np.stack(each), *records)

    def _compile(self, state: TrainingState) -> None:
        """By an update that is thrown away; no environment is stepped."""
        steps, lanes = self._trainer.rollout_length, self._trainer.environments
        table, inner = table_of(state.lanes), state.lanes.environment.inner
        leaves, kind = jax.tree.flatten(_known(state))
        action = np.asarray(self._act(kind, leaves, table, self._draw_batch(state)[0][0]))
        tables = np.zeros((2, steps, *table.shape), np.float32)
        actions = np.zeros((steps, lanes, *action.shape[1:]), action.dtype)
        jax.block_until_ready(self._learn(state, tables, actions, table, inner))

    def collect(self, state: TrainingState) -> tuple[Any, ...]:
        """Play a batch: the lanes before and after every step, the actions, and the table and inner
        state at the end."""
        trainer, steps = self._trainer, self._trainer.rollout_length
        episodes = self._episodes(state.key)
        if not _take_up(episodes, state.lanes).all():
            raise CanaryError(
                f"Episodes of {self._environment.name} could not be restored: the same seed and "
                "actions led to other observations."
            )
        noise, identities = map(np.asarray, self._draw_batch(state))
        tables, actions = np.empty((2, steps, *episodes.table.shape), np.float32), []
        # A program takes the leaves of a tree quicker than a tree of records.
        leaves, kind = jax.tree.flatten(_known(state))
        for time in range(steps):
            tables[0, time] = episodes.table
            action = np.asarray(self._act(kind, leaves, episodes.table, noise[time]))
            episodes.step(slice(None), action, trainer.cost_discount)
            tables[1, time] = episodes.table
            actions.append(action)
            if (done := episodes.done).any():
                over = np.flatnonzero(done)
                episodes.start(over, identities[time, over])
        return tables, np.stack(actions), *_arrays(episodes)

    def revive(self, state: TrainingState) -> tuple[TrainingState, int]:
        """The stored state with live environments, and how many episodes could not be brought
        back: new ones start in their lanes."""
        episodes = self._episodes(state.key)
        alive = _take_up(episodes, state.lanes)
        if not alive.all():
            key = jax.random.fold_in(state.key, state.terms.iteration)
            keys = jax.random.split(key, len(alive))
            lost = np.flatnonzero(~alive)
            episodes.start(lost, np.asarray(draw_identities(keys))[lost])
            state = replace(state, lanes=lanes_of(*_arrays(episodes)))
        return state, int((~alive).sum())

    def _episodes(self, key: PRNGKeyArray) -> Episodes:
        """The live environments of the seed with this key."""
        name = np.asarray(jax.random.key_data(key)).tobytes()
        return self._environment.episodes(name, self._trainer.environments)


def _draw_start(trainer: Trainer, seed: Int[Array, ""]) -> Any:
    """Identities and clocks of the first episodes (as `rollout.start_lanes`), and the keys of
    learner and run."""
    key_learner, key_lanes, key_run = jax.random.split(seed_key(seed), 3)
    key_reset, key_time = jax.random.split(key_lanes)
    count, time = trainer.environments, jnp.zeros(trainer.environments, jnp.int32)
    if trainer.stagger:
        time = jax.random.randint(key_time, (count,), 0, trainer.environment.horizon, jnp.int32)
    return draw_identities(jax.random.split(key_reset, count)), time, (key_learner, key_run)


def _draw_batch(trainer: Trainer, state: TrainingState) -> Any:
    """The noise of the actions and the identities of possible resets, for every step of a batch:
    drawn at once, because random numbers would take half of the time of `_act`."""
    key_rollout, _ = batch_keys(state)
    keys = jax.random.split(key_rollout, (trainer.rollout_length, 3))
    resets = jax.vmap(lambda key: jax.random.split(key, trainer.environments))(keys[:, 2])
    inputs = state.lanes.inputs(trainer.account(state.terms.limit), state.statistics)
    noise = jax.vmap(state.learner.policy(inputs).noise)(keys[:, 0])
    return noise, draw_identities(resets)


def _known(state: TrainingState) -> tuple[Any, ...]:
    """What `_act` needs beside the lanes."""
    return state.learner.policy, state.statistics, state.terms.limit


def _act(
    trainer: Trainer,
    kind: PyTreeDef,
    leaves: list[Array],
    table: Float[Array, "lane column"],
    noise: Float[Array, "lane action"],
) -> Array:
    """The actions of all lanes in a step of the batch."""
    policy, statistics, limit = jax.tree.unflatten(kind, leaves)
    inputs = lanes_of(table).inputs(trainer.account(limit), statistics)
    return policy(inputs).choose(noise)


def _learn(
    trainer: Trainer,
    state: TrainingState,
    tables: Float[Array, "2 time lane column"],
    actions: Array,
    table: Float[Array, "lane column"],
    inner: HostState,
) -> Any:
    """The update by a batch that was played on the host."""
    account = trainer.account(state.terms.limit)
    before, after = lanes_of(tables[0]), lanes_of(tables[1])
    inputs = before.inputs(account, state.statistics)
    rollout = transition(account, state.statistics, before, inputs, actions, after)
    _, key_update = batch_keys(state)
    seen = before.environment.observation
    return improve(trainer, state, lanes_of(table, inner), rollout, seen, key_update)


def _take_up(episodes: Episodes, lanes: Lane) -> Bool[np.ndarray, "lane"]:
    inner = jax.tree.map(np.asarray, lanes.environment.inner)
    return episodes.take_up(inner.identity, inner.steps, inner.actions, table_of(lanes))


def _arrays(episodes: Episodes) -> tuple[Array, HostState]:
    """Table and inner state as they are now, in memory of their own."""
    inner = map(jnp.array, (episodes.identity, episodes.steps, episodes.actions))
    return jnp.array(episodes.table), HostState(*inner)
