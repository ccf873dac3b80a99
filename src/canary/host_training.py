"""Training on an environment outside JAX, by a plain Python loop with a compiled function for each
part:

    act (compiled), step every lane (Python), act, step, ..., learn (compiled)

No program calls back into Python, so JAX can cache all of them. Keys, records and the order of
resets are those of `training.train_chunk`.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import PyTreeDef
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from canary.environments.gymnasium_environment import (
    GymnasiumEnvironment,
    HostState,
    draw_identities,
)
from canary.host.episodes import COLUMNS, TIME, VALID, Episodes
from canary.host_loop import lanes_of, table_of
from canary.rollout import Lane, transition
from canary.training import Trainer, TrainingState, batch_keys, fresh_state, improve, seed_key
from canary.types import Terms

EVERYONE = slice(None)


class HostTraining:
    """Training on a host environment: states have a first axis of one seed, as those of a group of
    seeds."""

    def __init__(self, trainer: Trainer, options: dict[str, Any] | None):
        jit = partial(jax.jit, compiler_options=options)
        self._trainer = trainer
        assert isinstance(trainer.environment, GymnasiumEnvironment)
        self._environment = trainer.environment
        self._draw_start = jit(partial(_draw_start, trainer))
        self._draw_batch = jit(partial(_draw_batch, trainer))
        self._act: Callable[..., Any] = jit(partial(_act, trainer), static_argnums=0)
        self._fresh = jit(partial(_fresh, trainer))
        self._learn = jit(partial(_learn, trainer))
        self.only = jit(lambda tree: jax.tree.map(lambda leaf: leaf[0], tree))
        self.group = jit(lambda tree: jax.tree.map(lambda leaf: leaf[None], tree))

    def init(self, seeds: Int[Array, "1"], terms: Terms) -> TrainingState:
        identity, time, keys = self._draw_start(seeds[0])
        episodes = self._episodes(keys[1])
        episodes.start(episodes.everyone, np.asarray(identity))
        episodes.table[:, TIME] = time = np.asarray(time)
        episodes.table[:, VALID] = time == 0
        return self.group(self._fresh(terms, *_arrays(episodes), keys))

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
        return jax.eval_shape(self.group, jax.eval_shape(self._fresh, terms, table, inner, keys))

    def compile(self, state: TrainingState) -> Callable[[TrainingState, int], Any]:
        """Compile what a chunk of updates needs; returns the function that makes one."""
        state = self.only(state)
        steps, lanes = self._trainer.rollout_length, self._trainer.environments
        table, inner = table_of(state.lanes), state.lanes.environment.inner
        leaves, kind = jax.tree.flatten(_known(state))
        noise = np.asarray(self._draw_batch(state)[0])
        action = np.asarray(self._act(kind, leaves, table, noise[0]))
        tables = np.zeros((2, steps, *table.shape), np.float32)
        actions = np.zeros((steps, lanes, *action.shape[1:]), action.dtype)
        learn = self._learn.lower(state, tables, actions, table, inner).compile()
        return partial(self._chunk, learn)

    def _chunk(self, learn: Any, state: TrainingState, count: int) -> tuple[TrainingState, Any]:
        """`count` updates, and their records along axes (one seed, update)."""
        state, records = self.only(state), []
        for _ in range(int(count)):
            state, record = learn(state, *self.collect(state))
            records.append(jax.tree.map(np.asarray, record))
        return self.group(state), jax.tree.map(lambda *each: np.stack(each)[None], *records)

    def collect(self, state: TrainingState) -> tuple[Any, ...]:
        """Play a batch: the lanes before and after every step, the actions, and the table and inner
        state at the end."""
        trainer, steps = self._trainer, self._trainer.rollout_length
        episodes = self._episodes(state.key)
        _take_up(episodes, state.lanes)
        episodes.require_live()
        noise, identities = map(np.asarray, self._draw_batch(state))
        tables, actions = np.empty((2, steps, *episodes.table.shape), np.float32), []
        # A program takes the leaves of a tree quicker than a tree of records.
        leaves, kind = jax.tree.flatten(_known(state))
        for time in range(steps):
            tables[0, time] = episodes.table
            action = np.asarray(self._act(kind, leaves, episodes.table, noise[time]))
            episodes.step(EVERYONE, action, trainer.cost_discount)
            tables[1, time] = episodes.table
            actions.append(action)
            if (done := episodes.done).any():
                over = np.flatnonzero(done)
                episodes.start(over, identities[time, over])
        return tables, np.stack(actions), *_arrays(episodes)

    def revive(self, state: TrainingState) -> tuple[TrainingState, int]:
        """The stored state with live environments, and how many episodes could not be brought
        back: new ones start in their lanes."""
        state = self.only(state)
        episodes = self._episodes(state.key)
        alive = _take_up(episodes, state.lanes)
        if not alive.all():
            key = jax.random.fold_in(state.key, state.terms.iteration)
            keys = jax.random.split(key, len(alive))
            lost = np.flatnonzero(~alive)
            episodes.start(lost, np.asarray(draw_identities(keys))[lost])
            state = replace(state, lanes=lanes_of(*_arrays(episodes)))
        return self.group(state), int((~alive).sum())

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


def _fresh(
    trainer: Trainer, terms: Terms, table: Array, inner: HostState, keys: Any
) -> TrainingState:
    return fresh_state(trainer, terms, lanes_of(table, inner), *keys)


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
