"""Initialisation, and the two distributions against textbook formulas."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from canary.environments.protocol import Continuous, Discrete
from canary.networks import (
    LOG_STD_FLOOR,
    SPENT_SCALE,
    Categorical,
    Gaussian,
    make_mlp,
    make_policy,
    orthogonal,
    within_bounds,
)

RNG = np.random.default_rng(0)


@pytest.mark.parametrize("shape", [(256, 256), (18, 256), (256, 4), (256, 1), (3, 3), (1, 5)])
def test_orthogonal_matrices_are_orthonormal(shape):
    matrix = np.asarray(orthogonal(jax.random.normal(jax.random.key(1), shape)))
    small = min(shape)
    gram = matrix @ matrix.T if shape[0] <= shape[1] else matrix.T @ matrix
    np.testing.assert_allclose(gram, np.eye(small), atol=2e-4)


def test_network_starts_scaled_and_unbiased_and_does_what_it_says():
    network = make_mlp(jax.random.key(0), (5, 16, 16, 3), head_scale=0.01)
    assert [weight.shape for weight in network.weights] == [(5, 16), (16, 16), (16, 3)]
    assert not any(bias.any() for bias in network.biases)
    for weight, scale in zip(network.weights, (2**0.5, 2**0.5, 0.01), strict=True):
        np.testing.assert_allclose(np.linalg.svd(weight)[1], scale, rtol=1e-3)
    x = RNG.normal(size=(7, 2, 5)).astype(np.float32)
    first, second, head = (np.asarray(weight) for weight in network.weights)
    np.testing.assert_allclose(
        network(x), np.tanh(np.tanh(x @ first) @ second) @ head, rtol=1e-4, atol=1e-6
    )


def test_a_budget_layer_is_linear_in_each_spent_cost():
    """W(y) = W_0 + s y_1 W_1 + s y_2 W_2 for y in [0, 1], and outside as at the ends."""
    network = make_mlp(jax.random.key(0), (5, 16, 3), head_scale=1.0, budgets=2)
    parts, (_, head) = np.split(np.asarray(network.weights[0]), 3), network.weights
    for spent in ([0.0, 0.0], [0.3, 0.9], [-1.0, 4.0]):
        x = np.array([0.5, -2.0, 0.7, *spent], np.float32)
        first, second = SPENT_SCALE * np.clip(spent, 0, 1)
        weight = parts[0] + first * parts[1] + second * parts[2]
        np.testing.assert_allclose(network(x), np.tanh(x @ weight) @ head, rtol=1e-4, atol=1e-6)


def test_policies_start_uniform_or_standard():
    x = RNG.normal(size=(50, 6)).astype(np.float32)
    discrete = make_policy(jax.random.key(0), 6, Discrete(4), (16, 16))(x)
    np.testing.assert_allclose(jax.nn.softmax(discrete.logits), 0.25, atol=0.02)
    assert np.asarray(discrete.logits).std() > 0  # but not exactly: the network is not dead
    continuous = make_policy(jax.random.key(0), 6, Continuous(3), (16, 16))(x)
    assert continuous.mean.shape == continuous.log_std.shape == (50, 3)
    np.testing.assert_allclose(continuous.mean, 0, atol=0.06)
    assert not continuous.log_std.any()
    narrow = make_policy(jax.random.key(0), 6, Continuous(3), (16, 16), 0.1)(x)
    np.testing.assert_array_equal(narrow.mean, continuous.mean)
    np.testing.assert_allclose(jnp.exp(narrow.log_std), 0.1, rtol=1e-6)


def test_categorical_is_the_textbook_one():
    logits = RNG.normal(size=(5, 3)).astype(np.float32)
    other = Categorical(jnp.asarray(RNG.normal(size=(5, 3)), jnp.float32))
    ours = Categorical(jnp.asarray(logits))
    p, q = (np.asarray(jax.nn.softmax(d.logits)) for d in (ours, other))
    action = np.array([0, 1, 2, 1, 0])
    np.testing.assert_allclose(ours.log_prob(action), np.log(p[np.arange(5), action]), rtol=1e-5)
    np.testing.assert_allclose(ours.entropy(), stats.entropy(p, axis=1), rtol=1e-5)
    np.testing.assert_allclose(ours.kl_from(other), stats.entropy(p, q, axis=1), rtol=1e-4)
    np.testing.assert_array_equal(ours.mode(), p.argmax(1))
    many = Categorical(jnp.broadcast_to(ours.logits, (20_000, 5, 3))).sample(jax.random.key(0))
    shares = np.stack([(np.asarray(many) == a).mean(0) for a in range(3)], -1)
    np.testing.assert_allclose(shares, p, atol=0.02)


def test_gaussian_is_the_textbook_one():
    mean, other_mean, action = RNG.normal(size=(3, 4, 2)).astype(np.float32)
    log_std, other_log_std = 0.5 * RNG.normal(size=(2, 4, 2)).astype(np.float32)
    ours, other = Gaussian(mean, log_std), Gaussian(other_mean, other_log_std)
    s, r = np.exp(log_std), np.exp(other_log_std)
    np.testing.assert_allclose(
        ours.log_prob(action), stats.norm.logpdf(action, mean, s).sum(1), rtol=1e-4
    )
    np.testing.assert_allclose(ours.entropy(), stats.norm.entropy(mean, s).sum(1), rtol=1e-5)
    kl = (np.log(r / s) + (s**2 + (mean - other_mean) ** 2) / (2 * r**2) - 0.5).sum(1)
    np.testing.assert_allclose(ours.kl_from(other), kl, rtol=1e-4)
    np.testing.assert_array_equal(ours.mode(), mean)
    wide = Gaussian(*(jnp.broadcast_to(leaf, (20_000, 4, 2)) for leaf in (mean, log_std)))
    draws = np.asarray(wide.sample(jax.random.key(0)))
    np.testing.assert_allclose(draws.mean(0), mean, atol=0.05)
    np.testing.assert_allclose(draws.std(0), s, rtol=0.05)


def test_a_deviation_at_its_floor_feels_a_gradient_and_comes_back():
    """Below the floor it would feel none, so it is lifted to the floor."""
    policy = make_policy(jax.random.key(0), 2, Continuous(2), (4,))
    lost = eqx.tree_at(lambda p: p.log_std, policy, jnp.array([-80.0, LOG_STD_FLOOR]))
    x = jnp.ones((3, 2))
    action = policy(x).mode() + 1.0  # far from the mode: a wider policy would fit better

    def fit(policy):
        return policy(x).log_prob(action).mean()

    assert jax.grad(fit)(lost).log_std[0] == 0
    found = within_bounds(lost)
    np.testing.assert_array_equal(found.log_std, LOG_STD_FLOOR)
    assert (jax.grad(fit)(found).log_std > 1).all()
    for _ in range(10):
        slope = jax.grad(fit)(found).log_std
        found = within_bounds(
            eqx.tree_at(lambda p: p.log_std, found, found.log_std + 0.1 * jnp.sign(slope))
        )
    assert (found.log_std > LOG_STD_FLOOR + 0.5).all()
