"""Canary's constraint pair against the truth on a decision process whose episodes can all be listed."""

from dataclasses import replace
from types import SimpleNamespace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from canary.algorithms.base import EstimationConfig
from canary.algorithms.canary import CanaryConfig, cantelli_constraint, cost_signals
from canary.algorithms.inputs import Inputs
from canary.algorithms.trust_region_step import TrustRegionConfig, trust_region_step
from canary.algorithms.trust_region_update import flatten
from canary.numerics.advantages import augmented_cost
from canary.numerics.moments import empty_window, record_episodes
from canary.numerics.risk import cantelli_value
from canary.types import Chance, EpisodeEnds
from problems.compilation import quick_compilation
from problems.probe_mdps import (
    EPSILON,
    LIMIT,
    ROOT,
    TABLE,
    TablePolicy,
    Truth,
    constraint_gradients,
    population,
)

CONSTRAINT = Chance(limit=LIMIT, epsilon=EPSILON)


@pytest.fixture(scope="module", autouse=True)
def quick():
    with quick_compilation():
        yield


def settings_of(gamma, **options):
    return CanaryConfig(estimation=EstimationConfig(cost_discount=gamma, window=1), **options)


@pytest.fixture(scope="module", params=[1.0, 0.9])
def exact(request):
    """The population, exact critics (V, V~, W) around every step, and the constraint estimated from them."""
    gamma = request.param
    with jax.enable_x64(True):
        rollout, nodes, afters = population(gamma)
        truth = Truth(TABLE, gamma)

        def column(function, where):
            return jnp.asarray([function(node) for node in where])[:, None]

        values = {
            "cost": lambda node: truth.remaining(node)[0],
            "square": truth.augmented,
            "to_come": lambda node: truth.remaining(node)[1],
        }
        critics = {name: (column(f, nodes), column(f, afters)) for name, f in values.items()}
        window = record_episodes(empty_window(rollout.done.size), rollout.episodes)
        here = jnp.stack([critics["cost"][0], critics["square"][0]])
        after = jnp.stack([critics["cost"][1], critics["square"][1]])
        estimate = cantelli_constraint(settings_of(gamma), CONSTRAINT)(rollout, here, after, window)
        samples = flatten(rollout, rollout.reward, estimate)
        inputs, start = Inputs(rollout.inputs[:, 0]), TablePolicy(jnp.asarray(TABLE))
        small = TrustRegionConfig(target_kl=1e-9, cg_iterations=30, cg_tolerance=1e-10)
        step = jax.jit(
            lambda scale: trust_region_step(
                start, inputs, samples, estimate.bound, scale, jnp.array(True), small
            )
        )
    return SimpleNamespace(
        gamma=gamma, rollout=rollout, nodes=nodes, truth=truth, critics=critics, window=window, values=here,
        next_values=after, estimate=estimate, samples=samples, inputs=inputs, step=step,
    )  # fmt: skip


def gradients(case, scale):
    """d(L_B, L_mu) / d table at the current policy, with surrogate changes Z = scale * mean[g ratio A]."""
    old = TablePolicy(jnp.asarray(TABLE))(case.inputs.rows).log_prob(case.samples.action)

    def constraints(table):
        ratio = jnp.exp(TablePolicy(table)(case.inputs.rows).log_prob(case.samples.action) - old)
        return case.estimate.bound(
            scale * (case.samples.cost_advantages * case.samples.weight * ratio).mean(1)
        )

    return np.asarray(jax.jacobian(constraints)(jnp.asarray(TABLE)))


def test_values_are_those_of_the_population(exact):
    with jax.enable_x64(True):
        np.testing.assert_allclose(exact.estimate.bound(jnp.zeros(2)), exact.truth.constraints(), rtol=1e-12)
        lengths = np.asarray(exact.rollout.episodes.length)[np.asarray(exact.rollout.episodes.ended)]
        np.testing.assert_allclose(exact.estimate.length, lengths.mean(), rtol=1e-12)
    mean, square = exact.truth.remaining(ROOT)
    np.testing.assert_allclose(exact.estimate.metrics["cost_mean"], mean * LIMIT, rtol=1e-12)
    np.testing.assert_allclose(
        exact.estimate.metrics["cost_deviation"], (square - mean**2) ** 0.5 * LIMIT, rtol=1e-12
    )
    np.testing.assert_allclose(
        exact.truth.augmented(ROOT), square, rtol=1e-12
    )  # E of the sum of c~ is E[C^2]


def test_gradients_equal_finite_differences_of_the_exact_bound(exact):
    """In episode units the ratio to the truth is 1; the per-step mean lacks the episode length."""
    truth = constraint_gradients(exact.gamma)
    with jax.enable_x64(True):
        found = gradients(exact, exact.estimate.length)
        per_step = gradients(exact, 1.0)
    assert np.abs(truth).max() > 0.1
    np.testing.assert_allclose(found, truth, rtol=1e-6, atol=1e-8)
    large = np.abs(truth) > 0.02
    np.testing.assert_allclose(
        (truth / np.where(large, per_step, 1))[large], float(exact.estimate.length), rtol=1e-6
    )


def test_without_the_discount_weight_the_gradient_would_be_wrong(exact):
    """Guards the test above: it can tell g_t = 1 from g_t = 0.9^t."""
    with jax.enable_x64(True):
        flat = SimpleNamespace(**vars(exact))
        flat.samples = eqx.tree_at(lambda s: s.weight, exact.samples, jnp.ones_like(exact.samples.weight))
        wrong = np.abs(gradients(flat, exact.estimate.length) - constraint_gradients(exact.gamma)).max()
    assert (wrong > 1e-2) == (exact.gamma < 1)


@pytest.mark.parametrize("limit", [LIMIT / 2, 100 * LIMIT])
def test_restoring_the_second_moment_gives_no_credit_for_a_higher_mean(exact, limit):
    """Violated: d L_B = beta dE[C^2] + 2 dE[C], wherever the mean is. Met: the bound's own derivative."""
    constraint = Chance(limit=limit, epsilon=EPSILON)

    def derivative(**options):
        estimate = cantelli_constraint(settings_of(exact.gamma, **options), constraint)(
            exact.rollout, exact.values, exact.next_values, exact.window
        )
        value = float(estimate.bound(jnp.zeros(2))[0])
        return value, np.asarray(jax.jacobian(estimate.bound)(jnp.zeros(2))[0])

    with jax.enable_x64(True):
        (value, plain), (same, restoring) = derivative(), derivative(restoration="second-moment")
    assert value == same
    assert (value > 0) == (limit < LIMIT)
    mean = exact.truth.remaining(ROOT)[0] * LIMIT / limit
    np.testing.assert_allclose(plain, [2 - 2 * mean / EPSILON, 1 / EPSILON - 1], rtol=1e-9)
    np.testing.assert_allclose(restoring, [2, 1 / EPSILON - 1] if value > 0 else plain, rtol=1e-9)


@pytest.mark.parametrize("decay", [0.0, 0.95, 1.0])
def test_structured_critic_is_exact_where_its_parts_are(exact, decay):
    """2 y V + g W is the value of the augmented cost; its targets and advantages agree with it."""
    config = settings_of(exact.gamma, structured_critic=True)
    config = replace(config, estimation=replace(config.estimation, gae_lambda=decay))
    rollout = exact.rollout
    with jax.enable_x64(True):
        structured = (
            2 * rollout.spent * exact.critics["cost"][0] + rollout.discount * exact.critics["to_come"][0]
        )
        np.testing.assert_allclose(structured, exact.critics["square"][0], rtol=1e-10, atol=1e-12)

        parts = [jnp.stack([exact.critics["cost"][i], exact.critics["to_come"][i]]) for i in (0, 1)]
        advantages, targets = cost_signals(rollout, *parts, config)
        plain = replace(config, structured_critic=False)
        expected, plain_targets = cost_signals(rollout, exact.values, exact.next_values, plain)
        np.testing.assert_allclose(advantages, expected, rtol=1e-9, atol=1e-11)
        np.testing.assert_allclose(targets[0], plain_targets[0], rtol=1e-12, atol=1e-14)

    # Over the copies of each node, the mean target of every critic is its exact value: a fixed point.
    for target, critic in ((targets[0], "cost"), (targets[1], "to_come"), (plain_targets[1], "square")):
        means: dict = {}
        for node, value, want in zip(
            exact.nodes, np.asarray(target)[:, 0], exact.critics[critic][0][:, 0], strict=True
        ):
            total, count, _ = means.get(node, (0.0, 0, 0.0))
            means[node] = (total + value, count + 1, float(want))
        for total, count, want in means.values():
            assert total / count == pytest.approx(want, abs=1e-10)


def test_inexact_structured_advantages_are_those_of_the_augmented_cost(exact):
    """Also with wrong critics, c~ + gamma V~(x') - V~(x) must be taken with one and the same function V~."""
    rng = np.random.default_rng(0)
    config = settings_of(exact.gamma, structured_critic=True)
    config = replace(config, estimation=replace(config.estimation, gae_lambda=0.0))
    rollout, shape = exact.rollout, exact.rollout.cost.shape
    v, w, v_next, w_next = (jnp.asarray(rng.normal(size=shape)) for _ in range(4))
    with jax.enable_x64(True):
        found, _ = cost_signals(rollout, jnp.stack([v, w]), jnp.stack([v_next, w_next]), config)
        y_next = rollout.spent + rollout.discount * rollout.cost
        g_next = rollout.discount * exact.gamma
        after = jnp.where(rollout.done, 0, 2 * y_next * v_next + g_next * w_next)
        square = augmented_cost(rollout.cost, rollout.spent, rollout.discount)
        expected = square + exact.gamma * after - (2 * rollout.spent * v + rollout.discount * w)
        np.testing.assert_allclose(found[1], expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("scale", ["episode", "step"])
def test_the_step_promises_what_the_exact_bound_does(exact, scale):
    """A small step through the whole trust-region machinery against the change of the exact (B, mu)."""
    with jax.enable_x64(True):
        policy, report = exact.step(exact.estimate.length if scale == "episode" else jnp.ones(()))
        change = Truth(np.asarray(policy.table), exact.gamma).constraints() - exact.truth.constraints()
    assert bool(report.accepted)
    assert change[0] < 0
    units = 1.0 if scale == "episode" else 1 / float(exact.estimate.length)
    np.testing.assert_allclose(report.predicted[0], change[0] * units, rtol=1e-3)
    np.testing.assert_allclose(report.surrogate, change * units, rtol=1e-3)


def test_unbiased_option_adds_the_missing_variance(exact):
    with jax.enable_x64(True):
        plain = exact.estimate.bound(jnp.zeros(2))
        config = settings_of(exact.gamma, unbiased=True)
        corrected = cantelli_constraint(config, CONSTRAINT)(
            exact.rollout, exact.values, exact.next_values, exact.window
        ).bound(jnp.zeros(2))
    costs = np.asarray(exact.rollout.episodes.cost)[np.asarray(exact.rollout.episodes.ended)] / LIMIT
    np.testing.assert_allclose(corrected[0] - plain[0], costs.var(ddof=1) / (EPSILON * len(costs)), rtol=1e-9)
    assert corrected[1] == plain[1]


@settings(deadline=None)
@given(st.floats(-2, 3), st.floats(0, 5), st.floats(0.001, 0.9), st.floats(-1, 1), st.floats(-1, 1))
def test_cantelli_value_and_its_surrogate_are_quadratic_in_the_mean(mean, variance, epsilon, z, z_square):
    """c_B = beta mu~ + 2 mu - mu^2 / epsilon - 1, and L_B is the same formula at (mu + Z, mu~ + Z~)."""
    beta, square = 1 / epsilon - 1, variance + mean**2

    def formula(first, second):
        return beta * second + 2 * first - first**2 / epsilon - 1

    size = 1e-4 * (1 + beta) * (1 + abs(square) + abs(z_square))
    assert float(cantelli_value(mean, variance, 1.0, epsilon)) == pytest.approx(
        formula(mean, square), abs=size
    )
    surrogate = formula(mean, square) + beta * z_square + (2 - 2 * mean / epsilon) * z - z**2 / epsilon
    assert surrogate == pytest.approx(formula(mean + z, square + z_square), abs=1e-9 * (1 + beta) * 20)


def test_surrogate_bound_is_that_formula(exact):
    mean, square = exact.truth.remaining(ROOT)
    z, z_square = 0.03, -0.07
    beta = 1 / EPSILON - 1
    with jax.enable_x64(True):
        found = exact.estimate.bound(jnp.array([z, z_square]))
    expected = beta * (square + z_square) + 2 * (mean + z) - (mean + z) ** 2 / EPSILON - 1
    np.testing.assert_allclose(found, [expected, mean + z - 1], rtol=1e-12)


def test_calibration_uses_the_multiple_that_the_episodes_need(exact):
    """With enough episodes the multiple is a measured one, and B is Cantelli's with the epsilon that belongs to it."""
    with jax.enable_x64(True):
        costs = jnp.asarray(np.random.default_rng(0).exponential(size=(600, 1)) * LIMIT / 9)
        ends = EpisodeEnds(
            ended=jnp.ones((600, 1), bool), valid=jnp.ones((600, 1), bool), reward=costs, cost=costs,
            length=jnp.ones((600, 1), jnp.int32), terminated=jnp.ones((600, 1), bool),
        )  # fmt: skip
        window = record_episodes(empty_window(600), ends)
        config = settings_of(exact.gamma, calibration=True, calibration_episodes=600)
        estimate = cantelli_constraint(config, Chance(limit=LIMIT, epsilon=0.02))(
            exact.rollout, exact.values, exact.next_values, window
        )
        multiple = float(estimate.metrics["tail_multiple"])
        assert 2.9 < multiple < 7, "an exponential cost needs log(50) - 1, Cantelli asks for 7"
        mean, variance = float(costs.mean()) / LIMIT, float(costs.var()) / LIMIT**2
        expected = cantelli_value(mean, variance, 1.0, 1 / (1 + multiple**2))
        np.testing.assert_allclose(estimate.bound(jnp.zeros(2))[0], expected, rtol=1e-6)


def test_no_episode_yet_gives_no_safe_looking_value(exact):
    with jax.enable_x64(True):
        nothing = empty_window(exact.rollout.done.size)
        estimate = cantelli_constraint(settings_of(exact.gamma), CONSTRAINT)(
            exact.rollout, exact.values, exact.next_values, nothing
        )
        assert np.isnan(estimate.bound(jnp.zeros(2))).all()
