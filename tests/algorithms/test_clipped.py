"""The clipped update against hand computations, piece by piece."""

from functools import cache, partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from canary.algorithms.base import Learner
from canary.algorithms.clipped import (
    ClippedConfig,
    ClippedExtra,
    Minibatch,
    clipped_surrogate,
    gradient_step,
    policy_loss,
)
from canary.algorithms.critics import init_critics, make_optimiser, minibatch_orders
from canary.environments.protocol import Continuous, Discrete
from canary.networks import critic_values, make_critics, make_policy
from problems.trees import assert_close, same


def test_clipped_surrogate_by_hand():
    """Good actions earn nothing beyond 1.2, bad ones nothing below 0.8."""
    ratio = jnp.array([1.0, 1.1, 1.5, 0.5, 1.0, 0.9, 0.5, 1.5])
    advantage = jnp.array([2.0, 2.0, 2.0, 2.0, -2.0, -2.0, -2.0, -2.0])
    expected = [2.0, 2.2, 2.4, 1.0, -2.0, -1.8, -1.6, -3.0]
    np.testing.assert_allclose(clipped_surrogate(ratio, advantage, 0.2), expected, rtol=1e-6)
    slope = jax.grad(lambda r: clipped_surrogate(r, advantage, 0.2).sum())(ratio)
    np.testing.assert_allclose(slope, [2, 2, 0, 2, -2, -2, 0, -2], rtol=1e-6)


@pytest.mark.parametrize("space", [Discrete(3), Continuous(2)])
def test_policy_loss_by_hand(space):
    """Ratios, entropies and means computed apart from the policy's own methods."""
    key = jax.random.key(0)
    policy = make_policy(key, 4, space, (8,))
    inputs = jax.random.normal(key, (6, 4))
    action = policy(inputs).sample(jax.random.key(1))
    old = policy(inputs).log_prob(action) + jnp.linspace(-0.5, 0.5, 6)
    advantage = jnp.array([1.0, -1.0, 2.0, 0.5, -0.5, 3.0])
    batch = Minibatch(inputs, action, old, advantage, jnp.zeros((6, 1)))
    loss, report = policy_loss(policy, batch, ClippedConfig(entropy=0.3), "none")

    if isinstance(space, Discrete):
        logits = np.asarray(policy.network(inputs), float)
        chances = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
        log_prob = np.log(chances[np.arange(6), np.asarray(action)])
        entropy = -(chances * np.log(chances)).sum(1).mean()
    else:
        error = np.asarray(action) - np.asarray(policy.network(inputs))
        log_prob = (-(error**2) / 2 - np.log(2 * np.pi) / 2).sum(1)  # deviation 1 at the start
        entropy = np.log(2 * np.pi * np.e)  # half of it for each of two dimensions
    ratio = np.exp(log_prob - np.asarray(old))
    gain = np.minimum(ratio * advantage, np.clip(ratio, 0.8, 1.2) * advantage).mean()
    assert float(loss) == pytest.approx(-gain - 0.3 * entropy, rel=1e-5)
    assert float(report["entropy"]) == pytest.approx(entropy, rel=1e-5)
    assert float(report["clipped_share"]) == pytest.approx((np.abs(ratio - 1) > 0.2).mean())


def test_every_epoch_deals_each_step_once_in_a_new_order():
    orders = np.asarray(minibatch_orders(jax.random.key(0), 1000, 3, 25)).reshape(3, 25, 40)
    for epoch in orders:
        np.testing.assert_array_equal(np.sort(epoch.ravel()), np.arange(1000))
    assert (orders[0] != orders[1]).mean() > 0.9
    assert (orders[1] != orders[2]).mean() > 0.9
    # Steps, not stretches of time: neighbours are as far apart as in any shuffle.
    assert np.abs(np.diff(orders[0], axis=1)).mean() > 250


@cache
def learner_and_batch():
    """A policy, two critics, and thirty steps."""
    return jax.jit(make_learner_and_batch)()


def make_learner_and_batch():
    policy = make_policy(jax.random.key(0), 3, Discrete(2), (8,))
    optimiser = make_optimiser(ClippedConfig().gradient_clip)
    networks = make_critics(jax.random.key(1), 2, 3, (8,))
    learner = Learner(
        policy, init_critics(networks, optimiser), ClippedExtra(optimiser.init(policy), None)
    )
    inputs = jax.random.normal(jax.random.key(2), (30, 3))
    action = policy(inputs).sample(jax.random.key(3))
    values = critic_values(networks, inputs).T
    targets = values + jax.random.normal(jax.random.key(4), values.shape)
    advantage = jax.random.normal(jax.random.key(5), (30,))
    batch = Minibatch(inputs, action, policy(inputs).log_prob(action), advantage, targets)
    return learner, batch


@partial(jax.jit, static_argnums=2)
def take_step(learner, batch, config):
    optimiser, rate = make_optimiser(config.gradient_clip), jnp.asarray(config.learning_rate)
    return gradient_step(learner, batch, optimiser, rate, config, "minibatch")[0]


def test_step_follows_the_gradient_of_the_written_loss():
    """-surrogate - h entropy + sum_i MSE_i / 4, clipped per network, through one step of Adam."""
    config = ClippedConfig(entropy=0.1, gradient_clip=1e9)
    learner, batch = learner_and_batch()

    def loss(policy, networks):
        errors = ((critic_values(networks, batch.inputs).T - batch.targets) ** 2).mean(0)
        return policy_loss(policy, batch, config, "minibatch")[0] + errors.sum() / 4

    @jax.jit
    def by_hand(policy, networks):
        reference = optax.adam(config.learning_rate, eps=1e-5)
        change, _ = reference.update(
            jax.grad(loss, (0, 1))(policy, networks), reference.init((policy, networks))
        )
        return optax.apply_updates((policy, networks), change)

    expected = by_hand(learner.policy, learner.critics.networks)
    moved = take_step(learner, batch, config)
    assert_close((moved.policy, moved.critics.networks), expected, atol=1e-6)


def test_huge_cost_targets_leave_policy_and_reward_critic_alone():
    learner, batch = learner_and_batch()
    huge = eqx.tree_at(lambda b: b.targets, batch, batch.targets.at[:, 1].multiply(1e6))
    moved, other = (take_step(learner, one, ClippedConfig()) for one in (batch, huge))
    assert same(moved.policy, other.policy)
    first = [jax.tree.map(lambda leaf: leaf[0], one.critics.networks) for one in (moved, other)]
    assert same(*first)


def test_a_minibatch_that_is_no_number_is_dropped():
    learner, batch = learner_and_batch()
    broken = eqx.tree_at(lambda b: b.advantage, batch, batch.advantage.at[3].set(jnp.nan))
    moved = take_step(learner, broken, ClippedConfig())
    assert same(moved.policy, learner.policy)
    assert same(moved.extra.optimiser, learner.extra.optimiser)
    assert not same(moved.critics.networks, learner.critics.networks)
