"""CVaR-CPO: its constraint against the exact CVaR, its critic against known distributions."""

from dataclasses import replace
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

from canary.algorithms.base import EstimationConfig
from canary.algorithms.critics import CriticConfig
from canary.algorithms.cvar_cpo import (
    CVaRCPOConfig,
    QuantileConfig,
    cvar_constraint,
    levels,
    quantile_critic,
    quantile_slope,
    quantiles,
    sampled_returns,
    tail_threshold,
)
from canary.algorithms.inputs import Inputs
from canary.numerics.costs import empty_window
from problems.breach_truth import COPIES, Law
from problems.probe_mdps import (
    EPSILON,
    LIMIT,
    TABLE,
    batch_of,
    copies,
    difference_quotients,
    estimated,
    population,
    surrogate_gradients,
)
from problems.rollouts import make_rollout
from problems.terms import make_terms

# --- the constraint on a process whose episodes can all be listed ---


def settings_of(gamma):
    return CVaRCPOConfig(estimation=EstimationConfig(cost_discount=gamma, window=1))


@pytest.fixture(scope="module", params=[1.0, 0.9])
def exact(request):
    """The population, all quantiles of the cost to come, and the constraint made of them."""
    gamma = request.param
    with jax.enable_x64(True):
        rollout, nodes, afters = population(gamma)
        law = Law(TABLE, gamma)
        here, after = (
            jnp.asarray(np.stack([law.quantiles(node) for node in some], -1))[..., None]
            for some in (nodes, afters)
        )
        make = cvar_constraint(settings_of(gamma))
        found = estimated(make, batch_of(rollout, here, after), make_terms(LIMIT, EPSILON))
    about = {"gamma": gamma, "nodes": nodes, "law": law, "here": here, "after": after}
    return SimpleNamespace(**about, **vars(found), make=make)


def test_value_is_the_exact_cvar(exact):
    assert exact.here.shape[0] == COPIES
    with jax.enable_x64(True):
        np.testing.assert_allclose(
            exact.estimate.bound(jnp.zeros(1)), [exact.law.cvar() - 1], rtol=1e-9
        )
    np.testing.assert_allclose(exact.estimate.metrics["cvar"], exact.law.cvar() * LIMIT, rtol=1e-9)


def test_gradient_equals_finite_differences_of_the_exact_cvar(exact):
    """The threshold is held fixed in the gradient and moves in the truth: the envelope theorem."""
    truth = difference_quotients(lambda table: Law(table, exact.gamma).cvar())
    with jax.enable_x64(True):
        found = surrogate_gradients(exact.rollout, exact.samples, exact.estimate, exact.length)[0]
    assert np.abs(truth).max() > 0.05
    np.testing.assert_allclose(found, truth, rtol=1e-5, atol=1e-8)


def test_no_episode_yet_gives_no_safe_looking_value(exact):
    with jax.enable_x64(True):
        nothing = empty_window(exact.rollout.done.size)
        batch = replace(exact.batch, window=nothing)
        value = exact.make(batch, make_terms(LIMIT, EPSILON)).bound(jnp.zeros(1))
    assert not np.isfinite(value).any()


def test_threshold_comes_from_episodes_if_they_are_many_enough():
    costs = jnp.arange(10.0)
    predictions = jnp.full((4, 3, 2), 6.5)
    some = jnp.arange(10) < 9
    assert tail_threshold(costs, some, predictions, 0.2) == 7  # 1 of 9 is above it
    assert tail_threshold(costs, some, predictions, 0.05) == 6.5  # 9 episodes do not resolve 5%
    # Never above the worst episode
    assert tail_threshold(costs, some, predictions + 100, 0.05) == 8
    assert tail_threshold(costs, some, predictions - 100, 0.05) == 0


# --- the quantile critic ---


@given(st.lists(st.floats(-20, 20, width=32), min_size=12, max_size=12))
@settings(deadline=None, max_examples=50)
def test_head_is_increasing_and_not_negative(output):
    found = np.asarray(jax.jit(quantiles)(np.array(output, np.float32)))
    assert found.shape == (10,)
    assert (np.diff(found) >= 0).all()
    assert (found >= 0).all()


def test_slope_is_the_derivative_of_the_quantile_huber_loss():
    rng = np.random.default_rng(0)
    prediction, target = jnp.asarray(rng.normal(size=(5, 7))), jnp.asarray(rng.normal(size=(11, 5)))
    huber = 0.3

    def loss(prediction):
        error = target[:, :, None] - prediction
        size = jnp.where(
            jnp.abs(error) <= huber, error**2 / (2 * huber), jnp.abs(error) - huber / 2
        )
        return (jnp.abs(levels(7) - (error < 0)) * size).mean(0).sum()

    expected = jax.grad(loss)(prediction)
    np.testing.assert_allclose(quantile_slope(prediction, target, huber), expected, atol=1e-6)


@pytest.mark.parametrize("decay", [0.7, 1.0])
def test_sampled_returns_follow_the_law_of_the_cost_to_come(exact, decay):
    """With exact quantiles the TD(lambda) mixture is the law itself: the truth is a fixed point."""
    estimation = EstimationConfig(cost_discount=exact.gamma, gae_lambda=decay)
    with jax.enable_x64(True):
        returns = np.asarray(
            sampled_returns(exact.rollout, exact.after, 16, estimation, jax.random.key(0))
        )
    for node in (exact.nodes[0], exact.nodes[1], exact.nodes[-1]):
        drawn = returns[:, copies(exact.nodes)[node]].ravel()
        law = exact.law.quantiles(node)
        assert scipy.stats.wasserstein_distance(drawn, law) < 0.03
        if decay == 1:  # no bootstrap: the copies of an episode return exactly what the law says
            assert scipy.stats.wasserstein_distance(drawn, law) < 1e-9


def coin_chain(key, length, envs):
    """Four steps that cost 1/4 each with probability 1/2: the cost to come is binomial."""
    cost = jax.random.bernoulli(key, 0.5, (length, envs)) / 4.0
    time = jnp.broadcast_to(jnp.arange(length)[:, None] % 4, (length, envs))
    done = time == 3
    after = jax.nn.one_hot(jnp.where(done, 3, time + 1), 4)
    return make_rollout(
        time=length,
        env=envs,
        cost=cost,
        terminated=done,
        inputs=jax.nn.one_hot(time, 4),
        next_inputs=after,
    )


def test_critic_converges_to_the_law_of_a_chain():
    updates = 120
    critic = CriticConfig(learning_rate=0.02, epochs=10, minibatches=2)
    estimation = EstimationConfig(gae_lambda=0.8)
    config = QuantileConfig(hidden=(16,), quantiles=32, samples=8)
    model = quantile_critic(config, critic, estimation)

    @jax.jit
    def update(state, iteration):
        key_play, key_fit = jax.random.split(jax.random.key(iteration))
        rollout = coin_chain(key_play, 10, 16)  # two episodes and a half: the rest is bootstrapped
        inputs = Inputs(rollout.inputs.reshape(-1, 4))
        terms = make_terms(1.0, 0.1, updates, iteration)
        after = model.predict(state, rollout.next_inputs)
        state, metrics = model.fit(state, inputs, rollout, after, terms, key_fit)
        return state, metrics["quantile_error"]

    state = model.init(jax.random.key(0), 4)
    for index in range(updates):
        state, error = update(state, index)
    found = np.asarray(model.predict(state, jnp.eye(4)))
    for step in range(4):
        law = scipy.stats.binom(4 - step, 0.5).ppf(np.asarray(levels(32))) / 4
        assert scipy.stats.wasserstein_distance(found[:, step], law) < 0.03
    assert error < 0.05
