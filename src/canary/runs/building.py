"""From a configuration to what trains it: environment, algorithm and sizes, and the groups of
seeds."""

import jax
import jax.numpy as jnp

from canary.algorithms.base import Task
from canary.config.config import RunConfig
from canary.rollout import CostAccount
from canary.runs.seeds import SeedGroups
from canary.training import Trainer
from canary.types import Terms


def make_trainer(config: RunConfig) -> Trainer:
    environment, training = config.environment, config.training
    on_cpu = jax.default_backend() == "cpu"
    task = Task(
        input_size=environment.observation_size + CostAccount.SIZE,
        action_space=environment.action_space,
        horizon=environment.horizon,
        constraint=config.constraint.kind,
        # Merging branches on the data, which a vectorised group of seeds would have to compute both
        # ways.
        merge_capacity=training.merge_capacity if on_cpu and training.seeds_per_device <= 1 else 0,
    )
    return Trainer(
        environment=environment,
        algorithm=config.algorithm.make(task),
        cost_discount=config.algorithm.estimation.cost_discount,
        clock=config.clock,
        environments=training.environments,
        rollout_length=training.rollout_length,
        stagger=training.stagger,
    )


def make_terms(config: RunConfig) -> Terms:
    """What the run is asked for, at its start."""
    limit, share = jnp.float32(config.constraint.limit), jnp.float32(config.constraint.share)
    return Terms(limit, share, jnp.int32(config.training.updates), jnp.int32(0))


def make_groups(config: RunConfig) -> SeedGroups:
    training = config.training
    return SeedGroups(
        make_trainer(config),
        make_terms(config),
        training.seeds,
        training.seeds_per_device,
        training.chunk,
    )
