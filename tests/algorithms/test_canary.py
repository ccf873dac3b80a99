"""Canary's constraint pair against the truth on a decision process whose episodes can all be
listed."""

from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from canary.algorithms.base import EstimationConfig
from canary.algorithms.canary import CanaryConfig, cantelli_constraint
from canary.algorithms.gradient_signal import no_signal
from canary.algorithms.inputs import Inputs
from canary.algorithms.surrogates import Surrogates
from canary.algorithms.trust_region_step import TrustRegionConfig
from canary.algorithms.trust_region_update import Evidence, flatten, surrogate_scale
from canary.config.config import make_config
from canary.numerics.moments import empty_window, record_episodes
from canary.numerics.risk import cantelli_value
from canary.numerics.shaped_cost import shaped
from canary.types import EpisodeEnds
from problems.breach_truth import Law, difference_quotients
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
from problems.rollouts import make_rollout
from problems.steps import take_one_step
from problems.terms import make_terms

ZERO = jnp.zeros(2)


def settings_of(gamma, **options):
    return CanaryConfig(estimation=EstimationConfig(cost_discount=gamma, window=1), **options)


def columns(where, *functions):
    return jnp.asarray([[function(node) for node in where] for function in functions])[..., None]


@pytest.fixture(scope="module", params=[1.0, 0.9])
def exact(request):
    """The population, exact critics around every step, and the constraint estimated from them."""
    gamma = request.param
    with jax.enable_x64(True):
        rollout, nodes, afters = population(gamma)
        truth = Truth(TABLE, gamma)
        window = record_episodes(empty_window(rollout.done.size), rollout.episodes)
        here, after = (
            columns(some, lambda node: truth.remaining(node)[0], truth.augmented)
            for some in (nodes, afters)
        )
        evidence = Evidence(rollout, here, after, window, make_terms(LIMIT, EPSILON), None)
        estimate = cantelli_constraint(settings_of(gamma))(evidence)
        samples = flatten(rollout, rollout.reward, estimate)
        case = SimpleNamespace(
            gamma=gamma, rollout=rollout, nodes=nodes, afters=afters, truth=truth, evidence=evidence,
            estimate=estimate, samples=samples, inputs=Inputs(rollout.inputs[:, 0]),
        )  # fmt: skip
        case.step = small_step(case)
    return case


def small_step(case):
    """A step through the whole trust-region machinery, so small that it is linear; a function of
    the scale."""
    start = TablePolicy(jnp.asarray(TABLE))
    small = TrustRegionConfig(cg_iterations=30, cg_tolerance=1e-10)

    @jax.jit
    def step(scale):
        surrogates = Surrogates(
            start,
            case.inputs,
            case.inputs.evaluate(start),
            case.samples,
            case.estimate.bound,
            scale,
        )
        return take_one_step(surrogates, small, radius=1e-9)

    return step


def gradients(case, scale):
    """d(L_B, L_mu) / d table at the current policy, with surrogate changes Z = scale * mean[g ratio
    A]."""
    old = TablePolicy(jnp.asarray(TABLE))(case.inputs.rows).log_prob(case.samples.action)

    def constraints(table):
        ratio = jnp.exp(TablePolicy(table)(case.inputs.rows).log_prob(case.samples.action) - old)
        return case.estimate.bound(
            scale * (case.samples.cost_advantages * case.samples.weight * ratio).mean(1)
        )

    return np.asarray(jax.jacobian(constraints)(jnp.asarray(TABLE)))


# --- the paper's constraint ---


def test_values_are_those_of_the_population(exact):
    with jax.enable_x64(True):
        np.testing.assert_allclose(
            exact.estimate.bound(ZERO), exact.truth.constraints(), rtol=1e-12
        )
        lengths = np.asarray(exact.rollout.episodes.length)[
            np.asarray(exact.rollout.episodes.ended)
        ]
        np.testing.assert_allclose(exact.estimate.length, lengths.mean(), rtol=1e-12)
    mean, square = exact.truth.remaining(ROOT)
    metrics = exact.estimate.metrics
    np.testing.assert_allclose(metrics["cost_mean"], mean * LIMIT, rtol=1e-12)
    np.testing.assert_allclose(
        metrics["cost_deviation"], (square - mean**2) ** 0.5 * LIMIT, rtol=1e-12
    )
    np.testing.assert_allclose(metrics["batch_bound"], exact.truth.constraints()[0], rtol=1e-12)
    assert metrics["provably_violating"] == 0  # said of every batch, whatever the cost discount
    # E of the sum of c~ is E[C^2]
    np.testing.assert_allclose(exact.truth.augmented(ROOT), square, rtol=1e-12)


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
        flat.samples = eqx.tree_at(
            lambda s: s.weight, exact.samples, jnp.ones_like(exact.samples.weight)
        )
        wrong = np.abs(
            gradients(flat, exact.estimate.length) - constraint_gradients(exact.gamma)
        ).max()
    assert (wrong > 1e-2) == (exact.gamma < 1)


@pytest.mark.parametrize("config", [CanaryConfig(), make_config(preset="paper").algorithm])
def test_defaults_and_paper_preset_promise_what_the_exact_bound_does(exact, config):
    """The change that the surrogates, and the linear model, promise of a small step is the change
    of (B, mu)."""
    scale = surrogate_scale(config.trust_region, exact.estimate.length, no_signal())
    assert scale == exact.estimate.length
    with jax.enable_x64(True):
        policy, step = exact.step(scale)
        change = (
            Truth(np.asarray(policy.table), exact.gamma).constraints() - exact.truth.constraints()
        )
    assert bool(step.search.accepted)
    assert change[0] < 0
    promised = step.solution.predicted_values - step.linear.levels.constraints
    np.testing.assert_allclose(promised[0], change[0], rtol=1e-3)
    np.testing.assert_allclose(step.search.evaluation.constraint_changes, change, rtol=1e-3)


@settings(deadline=None)
@given(st.floats(-2, 3), st.floats(0, 5), st.floats(0.001, 0.9), st.floats(-1, 1), st.floats(-1, 1))
def test_cantelli_value_and_its_surrogate_are_quadratic_in_the_mean(
    mean, variance, epsilon, z, z_square
):
    """c_B = beta mu~ + 2 mu - mu^2 / epsilon - 1, and L_B is the same formula at (mu + Z, mu~ +
    Z~)."""
    beta, square = 1 / epsilon - 1, variance + mean**2

    def formula(first, second):
        return beta * second + 2 * first - first**2 / epsilon - 1

    size = 1e-4 * (1 + beta) * (1 + abs(square) + abs(z_square))
    assert float(cantelli_value(mean, variance, 1.0, epsilon)) == pytest.approx(
        formula(mean, square), abs=size
    )
    surrogate = (
        formula(mean, square) + beta * z_square + (2 - 2 * mean / epsilon) * z - z**2 / epsilon
    )
    assert surrogate == pytest.approx(
        formula(mean + z, square + z_square), abs=1e-9 * (1 + beta) * 20
    )


def test_surrogate_bound_is_that_formula(exact):
    mean, square = exact.truth.remaining(ROOT)
    z, z_square = 0.03, -0.07
    beta = 1 / EPSILON - 1
    with jax.enable_x64(True):
        found = exact.estimate.bound(jnp.array([z, z_square]))
    expected = beta * (square + z_square) + 2 * (mean + z) - (mean + z) ** 2 / EPSILON - 1
    np.testing.assert_allclose(found, [expected, mean + z - 1], rtol=1e-12)


def test_no_episode_yet_gives_no_safe_looking_value(exact):
    with jax.enable_x64(True):
        nothing = replace(exact.evidence, window=empty_window(exact.rollout.done.size))
        estimate = cantelli_constraint(settings_of(exact.gamma))(nothing)
        assert np.isnan(estimate.bound(jnp.zeros(2))).all()
        assert np.isnan(estimate.metrics["batch_bound"])


# --- restoration by the second moment ---


EPISODES = 1000


@partial(jax.jit, static_argnums=3)
def constraint_of(costs, epsilon, change, dead_zone=None):
    """Canary's surrogates, restoring the second moment, from a window of episodes whose costs are
    in limits."""
    drawn = costs[:, None]
    yes = jnp.ones(drawn.shape, bool)
    ends = EpisodeEnds(yes, yes, drawn, drawn, jnp.ones(drawn.shape, jnp.int32), yes)
    window = record_episodes(empty_window(EPISODES), ends)
    config = settings_of(1.0, restoration="second-moment", dead_zone=dead_zone)
    memory = None if dead_zone is None else jnp.asarray(dead_zone)
    rollout, nothing = make_rollout(time=1, env=1), jnp.zeros((2, 1, 1))
    evidence = Evidence(rollout, nothing, nothing, window, make_terms(1.0, epsilon), memory)
    estimate = cantelli_constraint(config)(evidence)
    return estimate.bound(change)[0], estimate.metrics


def surrogate_and_truth(costs, old, new, epsilon):
    """B and its surrogate before and after a change of the law of costs; laws as numbers of
    episodes."""
    before, after = (moments(costs, np.array(law) / EPISODES) for law in (old, new))
    with jax.enable_x64(True):
        window = jnp.asarray(np.repeat(costs, old))
        at_start, found = (
            float(constraint_of(window, epsilon, jnp.asarray(change))[0])
            for change in (np.zeros(2), np.subtract(after, before))
        )
    return (at_start, found), (true_bound(*before, epsilon), true_bound(*after, epsilon))


def moments(costs, chances):
    costs, chances = np.asarray(costs), np.asarray(chances)
    return chances @ costs, chances @ costs**2


def true_bound(mean, square, epsilon):
    return (1 / epsilon - 1) * (square - mean**2) - (1 - mean) ** 2


def test_cheap_episodes_made_cheaper_do_not_pass_for_a_restored_bound():
    """95% C = 1, 5% C = 4, limit 5.5, epsilon 0.02; then 30% of all episodes cost 0 instead of 1.

    That raises B by 0.397. Without any term in the mean but 2 Z, the surrogate would have it fall
    by 0.595.
    """
    costs = np.array([0.0, 1.0, 4.0]) / 5.5
    (start, surrogate), (before, after) = surrogate_and_truth(
        costs, [0, 950, 50], [300, 650, 50], 0.02
    )
    assert before > 0
    assert after - before == pytest.approx(0.397, abs=1e-3)
    assert start >= before
    assert surrogate >= after


law = st.lists(st.integers(0, 333), min_size=3, max_size=3).map(lambda n: [*n, EPISODES - sum(n)])


@settings(deadline=None, max_examples=300)
@given(law, law, st.lists(st.floats(0, 2), min_size=4, max_size=4), st.floats(0.005, 0.5))
def test_no_surrogate_of_the_second_moment_is_below_the_true_bound(old, new, costs, epsilon):
    """For any two laws of the cost, whichever way the mean goes."""
    (_, surrogate), (before, after) = surrogate_and_truth(np.array(costs), old, new, epsilon)
    assert surrogate >= after - 1e-9 / epsilon
    if before < -1e-9 / epsilon:  # then it is the bound's own surrogate, which is exact
        assert surrogate == pytest.approx(after, abs=1e-9 / epsilon)


@pytest.mark.parametrize("limit", [LIMIT / 2, 100 * LIMIT])
def test_the_second_moment_gives_no_credit_for_a_mean_above_epsilon(exact, limit):
    """Violated: the tangent of B at m = min(mu, epsilon), where a higher mean never helps. Met: B
    itself."""

    def bound(**options):
        evidence = replace(exact.evidence, terms=make_terms(limit, EPSILON))
        return cantelli_constraint(settings_of(exact.gamma, **options))(evidence).bound

    with jax.enable_x64(True):
        plain, restoring = bound(), bound(restoration="second-moment")
        value, raised = float(plain(ZERO)[0]), float(restoring(ZERO)[0])
        slopes = [np.asarray(jax.jacobian(each)(jnp.zeros(2))[0]) for each in (plain, restoring)]
        bend = float(jax.hessian(lambda z: restoring(jnp.stack([z, 0.0]))[0])(0.0))
    mean = exact.truth.remaining(ROOT)[0] * LIMIT / limit
    tangent = min(mean, EPSILON) if value > 0 else mean
    assert (value > 0) == (limit < LIMIT)
    assert raised == pytest.approx(value + (mean - tangent) ** 2 / EPSILON)
    np.testing.assert_allclose(slopes[0], [2 - 2 * mean / EPSILON, 1 / EPSILON - 1], rtol=1e-9)
    np.testing.assert_allclose(
        slopes[1], [2 - 2 * tangent / EPSILON, 1 / EPSILON - 1], rtol=1e-9, atol=1e-12
    )
    assert bend == pytest.approx(0 if value > 0 else -2 / EPSILON)


# --- the shaped cost ---

ZONES = [0.0, 0.3, 0.7]


def shaped_case(exact, dead_zone):
    """The same population, with exact critics of the shaped cost."""
    law, rollout = Law(TABLE, exact.gamma), exact.rollout

    def excess(power, node, spent):
        """E[phi(C)^power | node] - phi(y)^power."""
        g = 1.0 if node is None else node.discount
        costs, chances = zip(*law.to_come(node).items(), strict=True)
        return np.array(chances) @ phi(spent + g * np.array(costs)) ** power - phi(spent) ** power

    def phi(spent):
        return shaped(np.asarray(spent), dead_zone)

    def critics(nodes, spent):
        places = list(zip(nodes, np.asarray(spent)[:, 0], strict=True))
        return jnp.asarray([[excess(power, *place) for place in places] for power in (1, 2)])[
            ..., None
        ]

    here = critics(exact.nodes, rollout.spent)
    after = critics(exact.afters, rollout.spent + rollout.discount * rollout.cost)
    evidence = replace(
        exact.evidence, values=here, next_values=after, memory=jnp.asarray(dead_zone)
    )
    estimate = cantelli_constraint(settings_of(exact.gamma, dead_zone=dead_zone))(evidence)
    samples = flatten(rollout, rollout.reward, estimate)
    return SimpleNamespace(estimate=estimate, inputs=exact.inputs, samples=samples, critics=here)


def shaped_constraints(table, gamma, dead_zone):
    """(B, mu - 1) of the shaped cost, exactly."""
    costs, chances = zip(*Law(table, gamma).to_come(ROOT).items(), strict=True)
    mean, square = moments(shaped(np.array(costs), dead_zone), chances)
    return np.array([true_bound(mean, square, EPSILON), mean - 1])


@pytest.mark.parametrize("dead_zone", ZONES)
def test_shaped_values_and_gradients_are_exact(exact, dead_zone):
    """In episode units, and without any discount weight: y_t carries the discount already."""
    truth = np.stack(
        [
            difference_quotients(lambda t, i=i: shaped_constraints(t, exact.gamma, dead_zone)[i])
            for i in range(2)
        ]
    )
    with jax.enable_x64(True):
        case = shaped_case(exact, dead_zone)
        values = case.estimate.bound(ZERO)
        found = gradients(case, case.estimate.length)
    np.testing.assert_allclose(values, shaped_constraints(TABLE, exact.gamma, dead_zone), rtol=1e-9)
    assert np.abs(truth).max() > 0.05
    np.testing.assert_allclose(found, truth, rtol=1e-5, atol=1e-7)
    assert (np.asarray(case.estimate.weight) == 1).all()


@pytest.mark.parametrize("dead_zone", ZONES)
def test_exact_shaped_critics_learn_themselves(exact, dead_zone):
    """Over the copies of a node the mean target of each critic is its value: the truth is a fixed
    point."""
    with jax.enable_x64(True):
        case = shaped_case(exact, dead_zone)
    pairs = zip(
        np.asarray(case.estimate.targets)[..., 0], np.asarray(case.critics)[..., 0], strict=True
    )
    for target, value in pairs:
        for node in set(exact.nodes):
            here = [index for index, other in enumerate(exact.nodes) if other == node]
            assert target[here].mean() == pytest.approx(value[here[0]], abs=1e-9)


@pytest.mark.parametrize("dead_zone", ZONES)
def test_shaped_metrics_are_those_of_the_shaped_cost(exact, dead_zone):
    with jax.enable_x64(True):
        metrics = jax.tree.map(float, shaped_case(exact, dead_zone).estimate.metrics)
    value, excess = shaped_constraints(TABLE, exact.gamma, dead_zone)
    mean = excess + 1
    variance = (value + (1 - mean) ** 2) / (1 / EPSILON - 1)
    assert metrics["shaped_mean"] == pytest.approx(mean)
    assert metrics["shaped_deviation"] == pytest.approx(variance**0.5)
    assert metrics["shaped_bound"] == pytest.approx(variance / (variance + (1 - mean) ** 2))
    assert metrics["shaped_bound"] >= Law(TABLE, exact.gamma).breach()
    assert metrics["cost_mean"] == pytest.approx(exact.truth.remaining(ROOT)[0] * LIMIT)
    assert metrics["dead_zone"] == dead_zone


@pytest.mark.parametrize(("cost", "bound"), [(1.5, 1.0), (1.0, 1.0), (0.5, 0.0)])
def test_a_saturated_cost_is_never_called_safe(cost, bound):
    """Every episode costs the same. From the limit on that is X = 1 without variance, and X >= 1 is
    a violation."""
    with jax.enable_x64(True):
        _, metrics = constraint_of(jnp.full(EPISODES, cost), 0.02, jnp.zeros(2), 0.5)
        assert float(metrics["shaped_bound"]) == bound


def test_without_a_dead_zone_nothing_is_shaped(exact):
    """None is not 0: the cost of the paper neither saturates nor loses its discount weight."""
    with jax.enable_x64(True):
        plain = cantelli_constraint(settings_of(exact.gamma, dead_zone=None))(exact.evidence)
    for name in ("advantages", "targets", "weight", "length"):
        np.testing.assert_array_equal(getattr(plain, name), getattr(exact.estimate, name))
    np.testing.assert_array_equal(plain.weight, exact.rollout.discount)
    assert plain.memory is None
    assert "dead_zone" not in plain.metrics
    with jax.enable_x64(True):
        saturated = shaped_case(exact, 0.0).estimate
    assert np.abs(np.asarray(saturated.advantages - plain.advantages)).max() > 0.1
