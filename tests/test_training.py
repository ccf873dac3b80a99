"""The paper's Canary on environments whose answers are known, and what training must not depend on."""

import jax
import jax.numpy as jnp
import numpy as np

from canary.config.config import make_config
from canary.constraints import Chance
from canary.numerics.running_statistics import normalise
from canary.runs.seeds import make_terms, make_trainer
from canary.training import init_training, train_chunk
from problems.probe_environments import Aim, DearLake
from problems.trees import assert_close

SMALL = ("algo.hidden=[16,16]", "algo.critic.minibatches=1")


def train(environment, constraint, updates, overrides=(), environments=8, rollout_length=16):
    """The state after training, and the records of all iterations."""
    steps = updates * environments * rollout_length
    config = make_config(
        environment, constraint=constraint, preset="paper", overrides=(*SMALL, *overrides), total_steps=steps,
        environments=environments, rollout_length=rollout_length, merge_capacity=0,
    )  # fmt: skip
    trainer = make_trainer(config)
    state = jax.jit(lambda: init_training(trainer, make_terms(config), 0))()
    state, records = jax.jit(lambda state: train_chunk(trainer, state, updates, updates))(state)
    return state, jax.tree.map(np.asarray, records)


def test_gaussian_policy_hits_targets_seen_in_physical_units():
    overrides = ("algo.critic.epochs=4", "algo.target_kl=0.05")
    state, (metrics, ends) = train(
        Aim(cost=1.0), Chance(limit=50.0, epsilon=0.1), 60, overrides, rollout_length=20
    )
    places = np.array([[300 + 50 * 0.6, -1000.0], [300 - 50 * 0.6, -1000.0]], np.float32)
    seen = np.concatenate([normalise(state.statistics, places), [[1, 0.02], [1, 0.02]]], -1)
    np.testing.assert_allclose(
        state.learner.policy(jnp.asarray(seen)).mean[:, 0], [0.6, -0.6], atol=0.2
    )
    assert metrics["entropy"][-1] < metrics["entropy"][0] - 0.5
    # All observations of the run went into the statistics, none twice.
    assert state.statistics.count == 60 * 8 * 20
    np.testing.assert_allclose(state.statistics.mean, [300, -1000], rtol=0.01)
    np.testing.assert_allclose(
        (state.statistics.squares / state.statistics.count) ** 0.5, [30, 0.3], rtol=0.1
    )
    # Staggered first episodes are cut short and marked so; all others have five steps at cost 1.
    assert set(np.unique(ends.cost[ends.ended & ends.valid])) == {5.0}
    assert (ends.cost[ends.ended & ~ends.valid] < 5).all()
    assert int(state.terms.iteration) == 60


def test_costs_and_limit_in_other_units_train_the_same_policy():
    """Everything times 7: decisions and rewards agree bit for bit, what is learnt to rounding."""
    trained = []
    for factor in (1.0, 7.0):
        constraint = Chance(limit=5.5 * factor, epsilon=0.02)
        trained.append(
            train(DearLake(factor=factor), constraint, 6, environments=3, rollout_length=100)
        )
    (state, (metrics, ends)), (other, (other_metrics, other_ends)) = trained
    assert_close(state.learner.policy, other.learner.policy, rtol=1e-3, atol=5e-6)
    assert_close(state.learner, other.learner, rtol=1e-3, atol=1e-5)
    assert metrics["accepted"].any()
    np.testing.assert_array_equal(ends.reward, other_ends.reward)
    np.testing.assert_array_equal(7 * ends.cost, other_ends.cost)
    np.testing.assert_allclose(metrics["bound_value"], other_metrics["bound_value"], rtol=1e-4)
    np.testing.assert_allclose(7 * metrics["cost_mean"], other_metrics["cost_mean"], rtol=1e-6)
