"""Policies in environments outside JAX: a plain Python loop around compiled functions.

    act (compiled), step every lane (Python), act, step, ..., learn (compiled)

`HostTraining` has the keys, records and order of resets of `training.train_chunk`. `HostPlayer`
plays whole episodes of a frozen policy, as `evaluation` does in one program. No program calls back
into Python, so JAX can cache all programs.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key, UInt32

from canary.environments.gymnasium_environment import (
    GymnasiumEnvironment,
    draw_identities,
    states_of,
)
from canary.errors import CanaryError
from canary.host.episodes import (
    DISCOUNT,
    LENGTH,
    RETURN,
    REWARD,
    SPENT,
    VALID,
    Episodes,
    blank,
)
from canary.networks import Distribution, Policy
from canary.numerics.running_statistics import RunningStatistics, sane
from canary.rollout import CostAccount, Lane, transition
from canary.training import (
    Trainer,
    TrainingState,
    batch_keys,
    fresh_state,
    seed_key,
    train_iteration,
)
from canary.types import EpisodeEnds, Terms

MOST_LANES = 64  # episodes played at once; each has its own environment


class HostLanes(eqx.Module):
    """The lanes of a seed as arrays of `Episodes`; they replace `Lane` in a training state."""

    identity: UInt32[Array, "*env 2"]
    steps: Int[Array, "*env"]
    actions: Float[Array, "*env horizon action"]
    table: Float[Array, "*env column"]

    @property
    def spent(self) -> Float[Array, "*env"]:
        return self.table[..., SPENT]


def lanes_of(table: Float[Array, "*batch column"]) -> Lane:
    """The lanes that a table of `Episodes` describes."""
    return Lane(
        environment=states_of(table),
        spent=table[..., SPENT],
        discount=table[..., DISCOUNT],
        reward=table[..., RETURN],
        length=table[..., LENGTH].astype(jnp.int32),
        valid=table[..., VALID] > 0,
    )


def make_act(account: CostAccount, choose: Callable[..., Array], **options: Any) -> Any:
    """`act(policy, statistics, limit)` returns a function that maps a table and random numbers to
    the actions of all lanes, `choose(distribution, *random numbers)`."""

    @partial(jax.jit, static_argnums=0, **options)
    def run(kind: Any, leaves: Any, table: Float[Array, "lane column"], *random: Any) -> Array:
        policy, statistics, limit = jax.tree.unflatten(kind, leaves)
        inputs = lanes_of(table).inputs(replace(account, limit=limit), statistics)
        return choose(policy(inputs), *random)

    def act(*known: Any) -> Callable[..., np.ndarray]:
        leaves, kind = jax.tree.flatten(known)  # faster to pass than a tree of records
        return lambda *inputs: np.asarray(run(kind, leaves, *inputs))

    return act


class FilmedState(NamedTuple):
    """The state of a filmed step: the episode, and the action that led to this step."""

    identity: UInt32[np.ndarray, "time 2"]
    action: Float[np.ndarray, "time action"]


class HostPlayer:
    """Plays whole episodes of a frozen policy outside JAX (see `evaluation.play_episodes`)."""

    def __init__(
        self, environment: GymnasiumEnvironment, account: CostAccount, *, deterministic: bool
    ):
        def choose(distribution: Distribution, keys: Key[Array, "lane"], time: Array) -> Array:
            if deterministic:
                return distribution.mode()
            return jax.vmap(lambda d, key: d.sample(jax.random.fold_in(key, time)))(
                distribution, keys
            )

        self._environment, self._account = environment, account
        self._act, self._draw = make_act(account, choose), jax.jit(_draw_episodes)
        self._live: dict[int, Episodes] = {}  # by number of lanes

    def __call__(
        self, policy: Policy, statistics: RunningStatistics | None, keys: Key[Array, "episode"]
    ) -> EpisodeEnds:
        """One episode per key."""
        most, tables = min(MOST_LANES, len(keys)), []
        for first in range(0, len(keys), most):
            # A last round of fewer episodes uses the same program; spare lanes are not stepped.
            lanes = np.arange(min(most, len(keys) - first))
            round_ = keys[(first + jnp.arange(most)) % len(keys)]
            episodes, moves = self._start(policy, statistics, round_, lanes)
            for _ in moves:
                pass
            tables.append(episodes.table[lanes])
        return jax.device_get(lanes_of(jnp.asarray(np.concatenate(tables))).ends)

    def film(
        self,
        policy: Policy,
        statistics: RunningStatistics | None,
        keys: Key[Array, "episode"],
        chosen: int,
    ) -> Lane:
        """All states of one of these episodes, from time 0 to its end."""
        lane, most = chosen % MOST_LANES, min(MOST_LANES, len(keys))
        round_ = keys[(chosen - lane + jnp.arange(most)) % len(keys)]
        episodes, moves = self._start(policy, statistics, round_, np.array([lane]))
        tables = np.stack([episodes.table[lane].copy() for _ in moves])
        actions = np.pad(episodes.actions[lane, : len(tables) - 1], ((1, 0), (0, 0)))
        identity = np.tile(episodes.identity[lane], (len(tables), 1))
        lanes = lanes_of(jnp.asarray(tables))
        state = replace(lanes.environment, inner=FilmedState(identity, actions))
        return jax.tree.map(np.asarray, replace(lanes, environment=state))

    def _start(
        self, policy: Policy, statistics: Any, keys: Any, lanes: np.ndarray
    ) -> tuple[Episodes, Iterator[Any]]:
        """The live episodes, and an iterator that plays these lanes to their ends. It yields after
        the resets and after every step."""
        identity, keys_act = self._draw(keys)
        act = self._act(policy, statistics, jnp.float32(self._account.limit))
        if len(keys) not in self._live:
            self._live[len(keys)] = self._environment.episodes(len(keys))
        episodes = self._live[len(keys)]

        def choose(time: int) -> np.ndarray:
            # An action for a non-finite observation makes the episode invalid.
            table = episodes.table
            table[:, VALID] *= sane(table[:, :REWARD]).all(1) | episodes.done
            return act(table, keys_act, np.int32(time))

        identity, discount = np.asarray(identity)[lanes], float(self._account.cost_discount)
        return episodes, episodes.play(lanes, identity, choose, discount)


def _draw_episodes(keys: Key[Array, "episode"]) -> Any:
    """Identities of the episodes, and keys of their actions."""
    split = jax.vmap(lambda key: jax.random.split(key, 3))(keys)
    return draw_identities(split[:, 0]), split[:, 1]


class HostTraining:
    """Training of seeds on a host environment, one seed at a time."""

    def __init__(self, trainer: Trainer, options: dict[str, Any] | None):
        jit = partial(jax.jit, compiler_options=options)
        assert isinstance(trainer.environment, GymnasiumEnvironment)
        self._trainer, self._environment = trainer, trainer.environment
        self._draw_start, self._fresh, self._draw_batch, self._learn = (
            jit(partial(each, trainer)) for each in (_draw_start, _fresh, _draw_batch, _learn)
        )
        account = trainer.account(jnp.zeros(()))
        self._act = make_act(account, lambda d, noise: d.choose(noise), compiler_options=options)
        self._live: dict[bytes, Episodes] = {}  # by key of the seed

    def init(self, terms: Terms, seed: Int[Array, ""]) -> TrainingState:
        identity, time, _ = self._draw_start(seed)
        episodes = self._environment.episodes(self._trainer.environments)
        episodes.start(episodes.everyone, np.asarray(identity), np.asarray(time))
        state = self._fresh(terms, seed, *map(jnp.array, episodes.arrays))
        self._live[_name(state)] = episodes
        return state

    def structure(self, terms: Terms) -> Any:
        """Shapes and types of a state; no environment is reset."""
        arrays = blank(self._trainer.environments, *self._environment.sizes)
        return jax.eval_shape(self._fresh, terms, jnp.int32(0), *arrays)

    def chunk(self, state: TrainingState, count: Any) -> tuple[TrainingState, Any]:
        """`count` updates, and their records along a first axis. A count of 0 only compiles."""
        if not count:
            self._compile(state)
            return state, None
        records = []
        for _ in range(int(count)):
            state, record = self._learn(state, *self.collect(state))
            records.append(jax.tree.map(np.asarray, record))
        return state, jax.tree.map(lambda *each: np.stack(each), *records)

    def _actor(self, state: TrainingState) -> Callable[..., np.ndarray]:
        return self._act(state.learner.policy, state.statistics, state.terms.limit)

    def _compile(self, state: TrainingState) -> None:
        """Compile with an update whose result is discarded; no environment is stepped."""
        act, (noise, _), table = self._actor(state), self._draw_batch(state), state.lanes.table
        action = act(np.asarray(table), np.asarray(noise[0]))
        tables = np.zeros((2, len(noise), *table.shape), np.float32)
        actions = np.zeros((len(noise), *action.shape), action.dtype)
        jax.block_until_ready(self._learn(state, tables, actions, state.lanes))

    def collect(self, state: TrainingState) -> tuple[Any, ...]:
        """Play a batch. Returns the tables before and after every step, the actions, and the final
        lanes."""
        episodes, alive = self._take_up(state)
        if not alive.all():
            raise CanaryError(
                f"Episodes of {self._environment.name} could not be restored: the same seed and "
                "actions led to other observations."
            )
        noise, identities = map(np.asarray, self._draw_batch(state))
        act = self._actor(state)
        tables, actions = np.empty((2, len(noise), *episodes.table.shape), np.float32), []
        for time in range(len(noise)):
            tables[0, time] = episodes.table
            actions.append(act(episodes.table, noise[time]))
            episodes.step(episodes.everyone, actions[-1], self._trainer.cost_discount)
            tables[1, time] = episodes.table
            if len(over := np.flatnonzero(episodes.done)):
                episodes.start(over, identities[time, over])
        return tables, np.stack(actions), _now(episodes)

    def revive(self, state: TrainingState) -> tuple[TrainingState, int]:
        """The stored state with live environments, and the number of episodes that could not be
        restored; new ones start in their lanes."""
        episodes, alive = self._take_up(state)
        if not alive.all():
            key = jax.random.fold_in(state.key, state.terms.iteration)
            keys = jax.random.split(key, len(alive))
            lost = np.flatnonzero(~alive)
            episodes.start(lost, np.asarray(draw_identities(keys))[lost])
            state = replace(state, lanes=_now(episodes))
        return state, int((~alive).sum())

    def _take_up(self, state: TrainingState) -> tuple[Episodes, np.ndarray]:
        """The seed's live environments in this state, and which of them could be restored."""
        name = _name(state)
        if name not in self._live:
            self._live[name] = self._environment.episodes(self._trainer.environments)
        return self._live[name], self._live[name].take_up(*jax.tree.leaves(state.lanes))


def _name(state: TrainingState) -> bytes:
    return np.asarray(jax.random.key_data(state.key)).tobytes()


def _draw_start(trainer: Trainer, seed: Int[Array, ""]) -> Any:
    """Identities and clocks of the first episodes, as in `rollout.start_lanes`, and the keys of
    learner and run."""
    key_learner, key_lanes, key_run = jax.random.split(seed_key(seed), 3)
    key_reset, key_time = jax.random.split(key_lanes)
    count, time = trainer.environments, jnp.zeros(trainer.environments, jnp.int32)
    if trainer.stagger:
        time = jax.random.randint(key_time, (count,), 0, trainer.environment.horizon, jnp.int32)
    return draw_identities(jax.random.split(key_reset, count)), time, (key_learner, key_run)


def _fresh(trainer: Trainer, terms: Terms, seed: Int[Array, ""], *arrays: Array) -> TrainingState:
    """The state before the first update."""
    *_, keys = _draw_start(trainer, seed)
    return fresh_state(trainer, terms, HostLanes(*arrays), *keys)


def _draw_batch(trainer: Trainer, state: TrainingState) -> Any:
    """The noise of the actions and the identities of possible resets, for every step of a batch.
    They are drawn at once, because drawing takes half the time of an action."""
    key_rollout, _ = batch_keys(state)
    keys = jax.random.split(key_rollout, (trainer.rollout_length, 3))
    resets = jax.vmap(lambda key: jax.random.split(key, trainer.environments))(keys[:, 2])
    account, lanes = trainer.account(state.terms.limit), lanes_of(state.lanes.table)
    distribution = state.learner.policy(lanes.inputs(account, state.statistics))
    return jax.vmap(distribution.noise)(keys[:, 0]), draw_identities(resets)


def _learn(
    trainer: Trainer,
    state: TrainingState,
    tables: Float[Array, "2 time lane column"],
    actions: Array,
    lanes: HostLanes,
) -> Any:
    """The update with a batch that was played on the host."""
    account = trainer.account(state.terms.limit)
    before, after = lanes_of(tables[0]), lanes_of(tables[1])
    inputs = before.inputs(account, state.statistics)
    rollout = transition(account, state.statistics, before, inputs, actions, after)
    batch = lanes, rollout, before.environment.observation
    return train_iteration(trainer, state, batch)


def _now(episodes: Episodes) -> HostLanes:
    """A copy of the lanes."""
    return HostLanes(*map(jnp.array, episodes.arrays))
