"""PPO: blind to cost, and with the paper's settings in each environment."""

from dataclasses import replace

import jax
import numpy as np
import pytest

from canary.algorithms.base import EstimationConfig, Task
from canary.algorithms.clipped import ClippedConfig, PPOConfig
from canary.config.config import make_config
from canary.environments.protocol import Discrete
from canary.numerics.costs import empty_window, record_episodes
from canary.rollout import CostAccount
from problems.probe_mdps import LEVELS, LIMIT, STATES, population
from problems.terms import make_terms

INPUTS = STATES * LEVELS + CostAccount.SIZE


def algorithm(**estimation):
    task = Task(input_size=INPUTS, action_space=Discrete(2))
    settings = EstimationConfig(hidden=(8,), **estimation)
    return PPOConfig(estimation=settings, clipped=ClippedConfig(minibatch_size=700)).make(task)


@pytest.fixture(scope="module")
def batch():
    rollout, _, _ = population(1.0)
    return rollout, record_episodes(empty_window(rollout.done.size), rollout.episodes)


def rescaled(rollout, factor):
    """The same experience, with costs, and all that is counted of them, multiplied."""
    costs = {name: factor * getattr(rollout, name) for name in ("cost", "spent", "spent_raw")}
    return replace(rollout, inputs=rollout.inputs.at[..., -1].multiply(factor), **costs)


def test_costs_change_nothing_but_the_log(batch):
    rollout, window = batch
    ppo = algorithm()
    learner = ppo.init(jax.random.key(0))
    update = jax.jit(ppo.update)
    rest = window, make_terms(LIMIT, 0.1, updates=4), jax.random.key(1)
    learned, metrics = update(learner, rollout, *rest)
    other, _ = update(learner, rescaled(rollout, 10.0), *rest)
    moved = False
    for a, b, start in zip(*map(jax.tree.leaves, (learned, other, learner)), strict=True):
        np.testing.assert_array_equal(a, b)
        moved |= bool((a != start).any())
    assert moved
    costs = np.asarray(rollout.episodes.cost)[np.asarray(rollout.episodes.ended)]
    assert float(metrics["cost_mean"]) == pytest.approx(costs.mean(), rel=1e-5)
    assert float(metrics["cost_deviation"]) == pytest.approx(costs.std(), rel=1e-4)
    assert float(metrics["violation_estimate"]) == pytest.approx((costs > LIMIT).mean(), rel=1e-5)
    assert float(metrics["window_episodes"]) == len(costs)


# --- the paper's tables ---


def test_configuration_takes_the_settings_of_its_environment():
    config = make_config(env="IcyLake", algorithm="PPO", preset="paper")
    assert config.algorithm.clipped.minibatch_size == 40
    assert config.algorithm.clipped.entropy == 0.01
    assert config.training.environments * config.training.rollout_length == 1000
    cppo = make_config(
        env="IcyLake", algorithm="cppo", overrides=("algo.proportional_gain=3",)
    ).algorithm
    assert (cppo.multiplier_init, cppo.multiplier_step, cppo.proportional_gain) == (1.0, 0.03, 3.0)
    assert cppo.standardise == "minibatch"
