"""The constrained step: its curvature, its promises, and the cases in which it must not move."""

from dataclasses import replace
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

from canary.algorithms.inputs import Inputs, merge_duplicates
from canary.algorithms.trust_region_step import (
    Samples,
    Surrogates,
    TrustRegionConfig,
    curvature,
    fisher_product,
    largest_advantage,
    search,
    step_metrics,
    trust_region_step,
)
from canary.constraints import Tier
from canary.environments.protocol import Continuous, Discrete
from canary.networks import make_policy
from problems.trees import same

SPACES = {"categorical": Discrete(3), "gaussian": Continuous(2)}
SAMPLES, WIDTH = 96, 4
CONFIG = TrustRegionConfig()


def rows(kinds=12):
    rng = np.random.default_rng(0)
    return jnp.asarray(
        rng.normal(size=(kinds, WIDTH))[rng.integers(0, kinds, SAMPLES)], jnp.float32
    )


def surrogates_of(problem, samples, values, wall=0.0, inputs=None, policy=None):
    """Two constraints of the given values; a wall that the gradient does not see bars the rest."""
    policy = problem.policy if policy is None else policy
    inputs = Inputs(problem.x) if inputs is None else inputs

    def bound(change):
        hidden = wall * (jnp.abs(change[0]) > 1e-5)
        return values + jnp.stack(
            [change[1] + 0.5 * change[0] - change[0] ** 2 + hidden, change[0]]
        )

    return Surrogates(policy, inputs, inputs.evaluate(policy), samples, bound, jnp.array(2.0))


@pytest.fixture(scope="module", params=list(SPACES))
def problem(request):
    """A policy off its initial point, a batch of its actions, and the step of the data."""
    x, rng = rows(), np.random.default_rng(3)

    @jax.jit
    def start():
        flat, unravel = ravel_pytree(
            make_policy(jax.random.key(0), WIDTH, SPACES[request.param], (8, 8))
        )
        policy = unravel(flat + rng.normal(0, 0.3, flat.shape).astype(np.float32))
        return policy, policy(x).sample(jax.random.key(2))

    policy, action = start()
    reward, cost, square = jnp.asarray(rng.normal(size=(3, SAMPLES)), jnp.float32)
    costs = jnp.stack([cost - cost.mean(), square - square.mean()])
    samples = Samples(action, reward, costs, jnp.ones(SAMPLES))
    problem = SimpleNamespace(policy=policy, samples=samples, x=x)

    @jax.jit
    def take(samples, values, ready, wall):
        surrogates = surrogates_of(problem, samples, values, wall)
        new, step = trust_region_step(surrogates, ready, CONFIG)
        return new, step, step_metrics(surrogates, step, CONFIG)

    def step(samples, values, ready=True, wall=0.0):
        """The new policy, everything about the step, and the metrics."""
        return take(samples, jnp.array(values, jnp.float32), jnp.array(ready), jnp.float32(wall))

    problem.step = step
    return problem


def mean_kl(new, old, x, weight=1.0):
    return float((new(x).kl_from(old(x)) * weight).mean())


def surrogate(policy, problem, signal):
    log_ratio = policy(problem.x).log_prob(problem.samples.action) - problem.policy(
        problem.x
    ).log_prob(problem.samples.action)
    return float((jnp.exp(log_ratio) * signal).mean())


# --- curvature ---


def test_fisher_product_is_the_hessian_of_the_mean_kl(problem):
    with jax.enable_x64(True):
        policy, x = jax.tree.map(
            lambda leaf: jnp.asarray(leaf, jnp.float64), (problem.policy, problem.x)
        )
        theta, unravel = ravel_pytree(policy)
        old = policy(x)
        merged, _, exact = merge_duplicates(x, 16)
        assert exact
        vectors = jax.random.normal(jax.random.key(5), (3, theta.size))

        @jax.jit
        def products(theta):
            def both(inputs):
                def distribution(t):
                    return unravel(t)(inputs.rows)

                return jax.vmap(fisher_product(distribution, theta, inputs.row_weights(), 0.1))(
                    vectors
                )

            hessian = jax.hessian(lambda t: unravel(t)(x).kl_from(old).mean())(theta)
            return both(Inputs(x)), both(merged), vectors @ hessian + 0.1 * vectors

        plain, from_merged, expected = products(theta)
        np.testing.assert_allclose(plain, expected, rtol=1e-8, atol=1e-10)
        np.testing.assert_allclose(from_merged, expected, rtol=1e-8, atol=1e-10)


def test_curvature_counts_both_means_of_the_divergence(problem):
    """A state's weight is the mean of 1 and of g_t over its mean."""
    weight = jnp.asarray(0.97 ** (jnp.arange(SAMPLES) % 50), jnp.float32)
    samples = replace(problem.samples, weight=weight)
    inputs = merge_duplicates(problem.x, 16)[0]
    surrogates = surrogates_of(problem, samples, jnp.zeros(2), inputs=inputs)
    theta = surrogates.parameters()
    vector = jax.random.normal(jax.random.key(5), theta.shape)
    old = problem.policy(problem.x)

    def divergence(t):
        kl = surrogates.policy_at(t)(problem.x).kl_from(old)
        return 0.5 * kl.mean() + 0.5 * (kl * weight).sum() / weight.sum()

    expected = jax.jit(lambda: jax.jvp(jax.grad(divergence), (theta,), (vector,))[1])()
    found = jax.jit(lambda: curvature(surrogates, theta, 0.0)(vector))()
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-5)


# --- the trust region ---


@pytest.mark.parametrize("most", [True, False])
def test_the_line_search_bounds_the_plain_and_the_discounted_divergence(problem, most):
    """Nearly all weight on the states where a step changes most, or least: both means must fit."""
    free, step, _ = problem.step(problem.samples, (-50.0, -50.0))
    moved = np.asarray(free(problem.x).kl_from(problem.policy(problem.x)))
    weight = jnp.asarray(
        np.where((moved > np.quantile(moved, 0.8)) == most, 1.0, 0.01), jnp.float32
    )
    relative = weight / weight.mean()
    theta = ravel_pytree(problem.policy)[0]
    full = step.found.theta - theta

    plain, discounted = (mean_kl(free, problem.policy, problem.x, w) for w in (1.0, relative))
    assert (discounted > 1.5 * plain) == most
    config = replace(CONFIG, target_kl=0.9 * max(plain, discounted))

    @jax.jit
    def shortened():
        samples = replace(problem.samples, weight=weight)
        surrogates = surrogates_of(problem, samples, jnp.array([-50.0, -50.0]))
        tier = jnp.array(Tier.NOMINAL)
        found = search(surrogates, theta, step.before, full, tier, config)
        return surrogates.policy_at(found.theta), found

    policy, found = shortened()
    assert bool(found.accepted)
    assert found.attempts == 2  # 0.8 of the step has about 0.64 of the divergence
    both = [mean_kl(policy, problem.policy, problem.x, w) for w in (1.0, relative)]
    np.testing.assert_allclose(found.levels.kl, max(both), rtol=1e-3)


def test_a_safe_problem_improves_the_reward_within_the_trust_region(problem):
    policy, step, metrics = problem.step(problem.samples, (-50.0, -50.0))
    assert step.tier == Tier.NOMINAL
    assert bool(step.found.accepted)
    signal = problem.samples.reward_advantage
    assert surrogate(policy, problem, signal) > surrogate(problem.policy, problem, signal)
    moved = mean_kl(policy, problem.policy, problem.x)
    assert 0.2 * CONFIG.target_kl < moved <= CONFIG.target_kl * (1 + 1e-4)
    np.testing.assert_allclose(metrics["kl"], moved, rtol=1e-3)
    np.testing.assert_allclose(metrics["kl_fraction"], moved / CONFIG.target_kl, rtol=1e-3)


@pytest.mark.parametrize(
    ("values", "tier"),
    [
        ((0.02, -0.01), Tier.NOMINAL),
        ((50.0, -1.0), Tier.BOUND_RESTORATION),
        ((50.0, 50.0), Tier.MEAN_RESTORATION),
    ],
)
def test_every_tier_respects_the_trust_region_and_what_it_must_not_worsen(problem, values, tier):
    policy, step, _ = problem.step(problem.samples, values)
    assert step.tier == tier
    assert bool(step.found.accepted)
    assert mean_kl(policy, problem.policy, problem.x) <= CONFIG.target_kl * (1 + 1e-4)
    z, z_square = (
        2 * surrogate(policy, problem, signal) for signal in problem.samples.cost_advantages
    )
    start = [2 * float(signal.mean()) for signal in problem.samples.cost_advantages]
    z, z_square = z - start[0], z_square - start[1]
    bound_change = z_square + 0.5 * z - z**2
    np.testing.assert_allclose(
        step.found.levels.constraints - step.before.constraints,
        [bound_change, z],
        rtol=1e-2,
        atol=1e-5,
    )
    np.testing.assert_allclose(step.before.constraints, values, atol=1e-4)
    slack = 1e-6
    match tier:
        case Tier.NOMINAL:
            assert bound_change <= slack
            assert z <= 0.01 + slack
        case Tier.BOUND_RESTORATION:
            assert bound_change < 0
            assert z <= 1.0
        case Tier.MEAN_RESTORATION:
            assert z < 0


# --- when not to move ---


def test_it_never_moves_without_a_sound_reason(problem):
    """Not ready, advantages or values that are not finite: the policy is the same, bit for bit."""
    samples, safe = problem.samples, (-1.0, -1.0)
    reward, costs = samples.reward_advantage, samples.cost_advantages
    cases = {
        "not ready": (samples, safe, False),
        "no episode yet": (samples, (np.nan, np.nan), True),
        "infinite cost": (samples, (np.inf, 0.0), True),
        "reward NaN": (replace(samples, reward_advantage=reward.at[0].set(jnp.nan)), safe, True),
        "cost NaN": (replace(samples, cost_advantages=costs.at[1, 0].set(jnp.nan)), safe, True),
        "cost infinite": (
            replace(samples, cost_advantages=costs.at[0, 0].set(jnp.inf)),
            safe,
            True,
        ),
    }
    for name, (data, values, ready) in cases.items():
        policy, step, metrics = problem.step(data, values, ready)
        assert same(policy, problem.policy), name
        assert step.tier == Tier.NO_STEP, name
        assert not step.found.accepted, name
        assert float(metrics["kl"]) == 0, name


def test_a_rejected_line_search_leaves_the_policy_bit_identical(problem):
    """The model sees a slope, but every trial point is unacceptable."""
    policy, step, metrics = problem.step(problem.samples, (-1e-3, -1.0), wall=1e3)
    assert step.tier == Tier.NOMINAL
    assert not step.found.accepted
    assert int(metrics["backtracks"]) == CONFIG.backtracks
    assert same(policy, problem.policy)
    assert float(metrics["kl"]) == 0


def test_the_largest_advantage_is_that_of_the_cost_under_the_new_policy(problem):
    policy, _, _ = problem.step(problem.samples, (-50.0, -50.0))
    surrogates = surrogates_of(problem, problem.samples, jnp.zeros(2))
    new, old = (p(problem.x).log_prob(problem.samples.action) for p in (policy, problem.policy))
    largest = np.abs(np.exp(new - old) * problem.samples.cost_advantages[0]).max()
    assert float(largest_advantage(surrogates, policy)) == pytest.approx(largest, rel=1e-4)
