"""The yardstick of the benchmark takes the same steps as the library."""

from dataclasses import replace

import jax
import numpy as np
from benchmarks.reference import make_reference
from jax.flatten_util import ravel_pytree

from canary.algorithms.base import Task
from canary.config.config import make_config
from canary.rollout import CostAccount
from canary.runs.seeds import make_terms, make_trainer
from canary.training import init_training, train_iteration


def test_plain_reference_and_library_take_the_same_steps():
    overrides = ("algo.hidden=[16,16]", "algo.critic.epochs=5", "training.merge_capacity=0")
    config = make_config(preset="paper", overrides=overrides)
    trainer = make_trainer(config)
    environment = config.environment
    task = Task(
        input_size=environment.observation_size + CostAccount.SIZE,
        action_space=environment.action_space,
    )
    plain = replace(trainer, algorithm=make_reference(config.algorithm, task))
    ours = theirs = jax.jit(lambda: init_training(trainer, make_terms(config), 0))()
    start = ravel_pytree(ours.learner.policy)[0]
    advance_ours = jax.jit(lambda state: train_iteration(trainer, state)[0])
    advance_theirs = jax.jit(lambda state: train_iteration(plain, state)[0])
    for _ in range(3):
        ours, theirs = advance_ours(ours), advance_theirs(theirs)
    policies = [
        np.asarray(ravel_pytree(state.learner.policy)[0] - start) for state in (ours, theirs)
    ]
    assert np.linalg.norm(policies[0]) > 1e-2
    assert np.linalg.norm(policies[0] - policies[1]) < 1e-2 * np.linalg.norm(policies[0])
    critics = [
        np.asarray(ravel_pytree(state.learner.critics.networks)[0]) for state in (ours, theirs)
    ]
    np.testing.assert_allclose(critics[0], critics[1], atol=2e-4)
