"""Canary on environments whose answers are known, and what training must not depend on."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from canary.experiments.config import make_config
from canary.experiments.runner import make_trainer
from canary.networks import critic_values
from canary.numerics.running_statistics import normalise
from canary.numerics.trust_region import Tier
from canary.training import init_training, train_chunk
from canary.types import Chance
from problems.compilation import quick_compilation
from problems.probe_environments import Aim, DearLake, Price, Questions, best_price

SMALL = ("algo.hidden=[16,16]", "algo.critic.minibatches=1")


def train(
    environment, constraint, updates, overrides=(), environments=8, rollout_length=16, seed=0, **training
):
    """The state after training, and the records of all iterations."""
    steps = updates * environments * rollout_length
    config = make_config(
        environment, constraint=constraint, overrides=(*SMALL, *overrides), total_steps=steps,
        environments=environments, rollout_length=rollout_length, merge_capacity=0, **training,
    )  # fmt: skip
    trainer = make_trainer(config)
    state = jax.jit(lambda: init_training(trainer, 0, seed))()
    state, records = jax.jit(lambda state: train_chunk(trainer, state, updates, updates))(state)
    return jax.tree.map(lambda leaf: leaf, state), jax.tree.map(np.asarray, records)


@pytest.fixture(scope="module")
def questions():
    with quick_compilation():
        overrides = ("algo.reward_discount=0.5", "algo.critic.learning_rate=0.01", "algo.critic.epochs=20")
        return train(Questions(), Chance(limit=4.0, epsilon=0.3), 60, overrides)


def test_critics_learn_the_known_values(questions):
    """Constant, observation-dependent, discounted and action-dependent rewards; costs and their squares."""
    state, _ = questions
    # One-hot question (and second step of question 2), discount g, spent cost in limits.
    x = np.zeros((5, 7), np.float32)
    x[:, :5], x[:, 5] = np.eye(5), 1.0
    x[4, 6] = 1 / 4
    reward, cost, square = critic_values(state.learner.critics.networks, jnp.asarray(x))
    # Question 2 is worth 1 a step later: 0.5. In question 3 the policy has learnt to earn 1.
    np.testing.assert_allclose(reward, [1, 2, 0.5, 1, 1], atol=0.15)
    np.testing.assert_allclose(cost, np.array([1, 0, 2, 0, 1]) / 4, atol=0.04)
    # E[C^2] - y^2 in squared limits: from y = 1 of 2, 4 - 1 = 3 remain.
    np.testing.assert_allclose(square, np.array([1, 0, 4, 0, 3]) / 16, atol=0.04)


def test_policy_answers_the_question_of_actions(questions):
    state, (metrics, ends) = questions
    asked = jnp.array([0.0, 0, 0, 1, 0, 1, 0])
    assert float(jax.nn.softmax(state.learner.policy(asked).logits)[1]) > 0.95
    assert metrics["kl"].max() <= 0.01 * (1 + 1e-3)
    # Costs of 2 against a limit of 4 leave B < 0 throughout: nothing to restore. Once every critic is exact
    # to the last bit, no advantage is left to act upon either.
    assert set(metrics["tier"]) <= {Tier.NOMINAL, Tier.NO_STEP}
    assert (metrics["tier"][5:20] == Tier.NOMINAL).all()
    assert np.isfinite(list(metrics.values())).all()
    # Episode records in raw units: 1, 0, 2 or 0.
    assert set(np.unique(ends.cost[ends.ended])) == {0.0, 1.0, 2.0}


def test_price_is_paid_exactly_as_often_as_the_bound_allows():
    """Starting at p = 1/2, above the optimum: restore first, then come back up to where B = 0."""
    limit, epsilon = 1.25, 0.2
    best = best_price(limit, epsilon)
    assert 0.31 < best < 0.33
    with quick_compilation():
        overrides = ("algo.critic.epochs=10", "algo.critic.learning_rate=0.003", "algo.window=500")
        state, (metrics, _) = train(
            Price(), Chance(limit=limit, epsilon=epsilon), 80, overrides, environments=16
        )
    seen = jnp.array([1.0, 1.0, 0.0])
    chance = float(jax.nn.softmax(state.learner.policy(seen).logits)[1])
    assert 0.75 * best < chance < 1.15 * best
    assert metrics["bound_value"][:3].min() > 0
    assert abs(metrics["cost_mean"][-20:].mean() - best) < 0.06


def test_gaussian_policy_hits_targets_seen_in_physical_units():
    with quick_compilation():
        overrides = ("algo.critic.epochs=4", "algo.target_kl=0.05")
        state, (metrics, ends) = train(
            Aim(cost=1.0), Chance(limit=50.0, epsilon=0.1), 60, overrides, rollout_length=20
        )
    places = np.array([[300 + 50 * 0.6, -1000.0], [300 - 50 * 0.6, -1000.0]], np.float32)
    seen = np.concatenate([normalise(state.statistics, places), [[1, 0.02], [1, 0.02]]], -1)
    np.testing.assert_allclose(state.learner.policy(jnp.asarray(seen)).mean[:, 0], [0.6, -0.6], atol=0.2)
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
    assert int(state.iteration) == 60


def test_costs_and_limit_in_other_units_train_the_same_policy():
    """Everything times 7: weights, critics, decisions and rewards agree bit for bit."""
    trained = []
    for factor in (1.0, 7.0):
        constraint = Chance(limit=5.5 * factor, epsilon=0.02)
        with quick_compilation():
            trained.append(train(DearLake(factor), constraint, 6, environments=3, rollout_length=100))
    (state, (metrics, ends)), (other, (other_metrics, other_ends)) = trained
    for one, seven in zip(jax.tree.leaves(state.learner), jax.tree.leaves(other.learner), strict=True):
        np.testing.assert_array_equal(one, seven)
    assert metrics["accepted"].any()
    np.testing.assert_array_equal(ends.reward, other_ends.reward)
    np.testing.assert_array_equal(7 * ends.cost, other_ends.cost)
    np.testing.assert_array_equal(metrics["bound_value"], other_metrics["bound_value"])
    np.testing.assert_allclose(7 * metrics["cost_mean"], other_metrics["cost_mean"], rtol=1e-6)
