"""The paper's Canary on environments whose answers are known, and what training must not depend on."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from canary.config.config import make_config
from canary.constraints import Chance, Tier
from canary.networks import critic_values
from canary.numerics.running_statistics import normalise
from canary.runs.seeds import make_terms, make_trainer
from canary.training import init_training, train_chunk
from problems.probe_environments import Aim, DearLake, Questions

SMALL = ("algo.hidden=[16,16]", "algo.critic.minibatches=1")


def train(
    environment,
    constraint,
    updates,
    overrides=(),
    environments=8,
    rollout_length=16,
    seed=0,
    **training,
):
    """The state after training, and the records of all iterations."""
    steps = updates * environments * rollout_length
    config = make_config(
        environment, constraint=constraint, preset="paper", overrides=(*SMALL, *overrides), total_steps=steps,
        environments=environments, rollout_length=rollout_length, merge_capacity=0, **training,
    )  # fmt: skip
    trainer = make_trainer(config)
    state = jax.jit(lambda: init_training(trainer, make_terms(config), seed))()
    state, records = jax.jit(lambda state: train_chunk(trainer, state, updates, updates))(state)
    return jax.tree.map(lambda leaf: leaf, state), jax.tree.map(np.asarray, records)


@pytest.fixture(scope="module")
def questions():
    overrides = (
        "algo.reward_discount=0.5",
        "algo.critic.learning_rate=0.01",
        "algo.critic.epochs=20",
    )
    return train(Questions(), Chance(limit=4.0, epsilon=0.3), 60, overrides)


def test_critics_learn_the_known_values(questions):
    """Constant, observation-dependent, discounted and action-dependent rewards; costs and their
    squares."""
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
    # Costs of 2 against a limit of 4 leave B < 0 throughout: nothing to restore. Once every critic
    # is exact to the last bit, no advantage is left to act upon either.
    assert set(metrics["tier"]) <= {Tier.NOMINAL, Tier.NO_STEP}
    assert (metrics["tier"][5:20] == Tier.NOMINAL).all()
    assert all(np.isfinite(values).all() for values in metrics.values())
    # Episode records in raw units: 1, 0, 2 or 0.
    assert set(np.unique(ends.cost[ends.ended])) == {0.0, 1.0, 2.0}


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
    policies = state.learner.policy, other.learner.policy
    jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-3, atol=5e-6), *policies)
    jax.tree.map(
        partial(np.testing.assert_allclose, rtol=1e-3, atol=1e-5), state.learner, other.learner
    )
    assert metrics["accepted"].any()
    np.testing.assert_array_equal(ends.reward, other_ends.reward)
    np.testing.assert_array_equal(7 * ends.cost, other_ends.cost)
    np.testing.assert_allclose(metrics["bound_value"], other_metrics["bound_value"], rtol=1e-4)
    np.testing.assert_allclose(7 * metrics["cost_mean"], other_metrics["cost_mean"], rtol=1e-6)
