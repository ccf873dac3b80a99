"""One training iteration as a pure function, and a chunk of them.

The key of seed i is fold_in(key(0), i), and the key of iteration k is fold_in(key of the seed, k).
So the numbers of a seed do not depend on other seeds, on the grouping of iterations into chunks, or
on stops and resumes.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key, PRNGKeyArray, PyTree

from canary.algorithms.base import Algorithm, Learner
from canary.environments.protocol import Environment
from canary.numerics.costs import EpisodeWindow, empty_window, record_episodes
from canary.numerics.running_statistics import RunningStatistics, initial_statistics, merge
from canary.rollout import CostAccount, collect, start_lanes
from canary.types import EpisodeEnds, Metrics, Rollout, Terms

FAULT = "fault"  # the metric that locates a non-finite number; the runner removes it
FAULT_KINDS = ("action", "cost", "reward", "observation")
RING = 512  # recent episodes for cost statistics, or one batch of steps if that is more


@dataclass(frozen=True)
class Trainer:
    """The constants of a training."""

    environment: Environment
    algorithm: Algorithm
    cost_discount: float
    clock: int | None
    """See `CostAccount`."""
    environments: int
    rollout_length: int
    stagger: bool = True

    def account(self, limit: Float[Array, "..."]) -> CostAccount:
        return CostAccount(limit, self.cost_discount, self.clock)


class TrainingState(eqx.Module):
    """The state of one seed. For several seeds, every array has a first axis of seeds."""

    learner: Learner
    lanes: Any
    """A `Lane`, or `HostLanes` for a host environment."""
    statistics: RunningStatistics | None
    window: EpisodeWindow
    terms: Terms
    key: Key[Array, "*seed"]


def seed_key(seed: Int[Array, ""] | int) -> PRNGKeyArray:
    return jax.random.fold_in(jax.random.key(0), seed)


def init_training(trainer: Trainer, terms: Terms, seed: Int[Array, ""] | int) -> TrainingState:
    return start_training(trainer, terms, seed_key(seed))


def start_training(trainer: Trainer, terms: Terms, key: PRNGKeyArray) -> TrainingState:
    key_learner, key_lanes, key_run = jax.random.split(key, 3)
    lanes = start_lanes(
        trainer.environment, trainer.environments, key_lanes, stagger=trainer.stagger
    )
    return fresh_state(trainer, terms, lanes, key_learner, key_run)


def fresh_state(
    trainer: Trainer, terms: Terms, lanes: Any, key_learner: PRNGKeyArray, key_run: PRNGKeyArray
) -> TrainingState:
    """The state before the first update."""
    environment = trainer.environment
    steps = trainer.environments * trainer.rollout_length
    return TrainingState(
        learner=trainer.algorithm.init(key_learner),
        lanes=lanes,
        statistics=initial_statistics(environment.observation_size)
        if environment.normalise_observation
        else None,
        window=empty_window(max(RING, steps), lanes.spent.shape[1:]),
        terms=terms,
        key=key_run,
    )


def batch_keys(state: TrainingState) -> Key[Array, "2"]:
    """The keys of the next rollout and of its update."""
    return jax.random.split(jax.random.fold_in(state.key, state.terms.iteration))


Batch = tuple[Any, Rollout, Float[Array, "time env obs"]]
"""The final lanes, the steps, and the observations of the policy."""


def train_iteration(
    trainer: Trainer, state: TrainingState, batch: Batch | None = None
) -> tuple[TrainingState, tuple[Metrics, EpisodeEnds]]:
    """Collect a batch with the current policy, record its episodes, improve the learner (paper
    Algorithm 1). For a host environment the `batch` is given."""
    key_rollout, key_update = batch_keys(state)
    account = trainer.account(state.terms.limit)
    lanes, rollout, observations = batch or collect(
        trainer.environment, account, state.learner.policy, state.lanes, state.statistics,
        key_rollout, trainer.rollout_length,
    )  # fmt: skip
    window = record_episodes(state.window, rollout.episodes)
    learner, metrics = trainer.algorithm.update(
        state.learner, rollout, window, state.terms, key_update
    )
    metrics = metrics | {FAULT: first_fault(rollout, observations)}
    statistics = None if state.statistics is None else merge(state.statistics, observations)
    terms = eqx.tree_at(lambda t: t.iteration, state.terms, state.terms.iteration + 1)
    next_state = TrainingState(learner, lanes, statistics, window, terms, state.key)
    return next_state, (metrics, rollout.episodes)


def first_fault(rollout: Rollout, observations: Float[Array, "time env obs"]) -> Float[Array, ""]:
    """The place of a batch's first non-finite number: 1 + (step x lanes + lane) x kinds + kind; 0
    if there is none."""

    def bad(array: Array) -> Bool[Array, "time env"]:
        entries = ~jnp.isfinite(array.astype(jnp.float32))
        return entries.reshape(*entries.shape[:2], -1).any(-1)

    seen = bad(observations) | bad(rollout.next_inputs)
    kinds = jnp.stack(
        [bad(rollout.action), bad(rollout.cost), bad(rollout.reward), seen], -1
    ).ravel()
    return jnp.where(kinds.any(), 1.0 + kinds.argmax(), 0.0)


def train_whole(
    trainer: Trainer, terms: Terms, key: PRNGKeyArray, updates: int
) -> tuple[TrainingState, Metrics]:
    """A whole training as one function; metrics are stacked over the updates.

    Besides the algorithm's metrics there are the number of episodes that ended in each update, and
    their mean return, mean cost and violation rate (NaN if none ended).
    """

    def over_episodes(column: Array, counts: Bool[Array, "time env"]) -> Array:
        """The mean, or one mean for each of several costs."""
        which = counts.reshape(counts.shape + (1,) * (column.ndim - counts.ndim))
        return jnp.mean(column, (0, 1), where=which)

    def advance(state: TrainingState, _: None) -> tuple[TrainingState, Metrics]:
        state, (metrics, ends) = train_iteration(trainer, state)
        counts = ends.ended & ends.valid
        columns = {
            "episode_return": ends.reward,
            "episode_cost": ends.cost,
            "episode_violation": (ends.cost > terms.limit).astype(jnp.float32),
        }
        means = {name: over_episodes(column, counts) for name, column in columns.items()}
        return state, metrics | means | {"episodes": counts.sum().astype(jnp.float32)}

    return jax.lax.scan(advance, start_training(trainer, terms, key), length=updates)


def train_chunk(
    trainer: Trainer, state: TrainingState, count: Int[Array, ""] | int, size: int
) -> tuple[TrainingState, tuple[Metrics, EpisodeEnds]]:
    """`count` iterations in one program. Records are stacked along a first axis of `size`; `count`
    entries are filled.

    The count is a run-time value, so one compiled program serves chunks of any length up to `size`.
    """
    # Traced once, for the shapes of its records and for the loop.
    iterate = jax.jit(partial(train_iteration, trainer), inline=True)
    _, record = jax.eval_shape(iterate, state)
    # XLA treats short arrays specially and may round their entries differently.
    places = max(size, 8)
    records = jax.tree.map(lambda leaf: jnp.zeros((places, *leaf.shape), leaf.dtype), record)

    def advance(index: Int[Array, ""], carry: tuple[TrainingState, PyTree]):
        state, records = carry
        state, record = iterate(state)
        return state, jax.tree.map(lambda all_, one: all_.at[index].set(one), records, record)

    return jax.lax.fori_loop(0, count, advance, (state, records))
