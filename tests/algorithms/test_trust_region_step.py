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
    TrustRegionConfig,
    few_states,
    fisher_product,
    report_metrics,
    trust_region_step,
)
from canary.environments.protocol import Continuous, Discrete
from canary.networks import make_policy
from canary.numerics.trust_region import Tier
from problems.compilation import quick_compilation

SPACES = {"categorical": Discrete(3), "gaussian": Continuous(2)}
SAMPLES, WIDTH = 96, 4
CONFIG = TrustRegionConfig()


@pytest.fixture(scope="module", autouse=True)
def quick():
    with quick_compilation():
        yield


def rows(kinds=12):
    rng = np.random.default_rng(0)
    return jnp.asarray(rng.normal(size=(kinds, WIDTH))[rng.integers(0, kinds, SAMPLES)], jnp.float32)


@pytest.fixture(scope="module", params=list(SPACES))
def problem(request):
    """A policy off its initial point, a batch of its actions, and the step as a function of the data."""
    x, rng = rows(), np.random.default_rng(3)

    @jax.jit
    def start():
        flat, unravel = ravel_pytree(make_policy(jax.random.key(0), WIDTH, SPACES[request.param], (8, 8)))
        policy = unravel(flat + rng.normal(0, 0.3, flat.shape).astype(np.float32))
        return policy, policy(x).sample(jax.random.key(2))

    policy, action = start()
    reward, cost, square = rng.normal(size=(3, SAMPLES)).astype(np.float32)
    costs = np.stack([cost - cost.mean(), square - square.mean()])
    half = np.arange(SAMPLES) % 2 == 0
    samples = Samples(action, reward, costs, np.ones(SAMPLES, np.float32), half)

    def take(inputs, policy, samples, values, ready, wall):
        def bound(change):
            # The wall is invisible to the gradient and stands in the way of every trial point.
            hidden = wall * (jnp.abs(change[0]) > 1e-5)
            return values + jnp.stack([change[1] + 0.5 * change[0] - change[0] ** 2 + hidden, change[0]])

        return trust_region_step(policy, inputs, samples, bound, jnp.array(2.0), ready, CONFIG)

    plain = jax.jit(lambda *data: take(Inputs(x), *data))

    def step(policy, samples, values, ready=True, wall=0.0, take=plain):
        return take(
            policy, samples, np.array(values, np.float32), np.array(ready), np.array(wall, np.float32)
        )

    return SimpleNamespace(policy=policy, samples=samples, step=step, take=take, x=x)


def changed(samples, **fields):
    """The samples with some fields replaced."""
    return Samples(
        **{name: fields.get(name, getattr(samples, name)) for name in Samples.__dataclass_fields__}
    )


def spoilt(array, index, value):
    array = np.array(array)
    array[index] = value
    return array


def mean_kl(new, old, x):
    return float(new(x).kl_from(old(x)).mean())


def surrogate(policy, problem, signal):
    log_ratio = policy(problem.x).log_prob(problem.samples.action) - problem.policy(problem.x).log_prob(
        problem.samples.action
    )
    return float((jnp.exp(log_ratio) * signal).mean())


def same(one, other):
    return all(
        np.array_equal(a, b) for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    )


def test_fisher_product_is_the_hessian_of_the_mean_kl(problem):
    with jax.enable_x64(True):
        policy, x = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float64), (problem.policy, problem.x))
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

                return jax.vmap(fisher_product(distribution, theta, inputs.shares(), 0.1))(vectors)

            hessian = jax.hessian(lambda t: unravel(t)(x).kl_from(old).mean())(theta)
            return both(Inputs(x)), both(merged), vectors @ hessian + 0.1 * vectors

        plain, from_merged, expected = products(theta)
        np.testing.assert_allclose(plain, expected, rtol=1e-8, atol=1e-10)
        np.testing.assert_allclose(from_merged, expected, rtol=1e-8, atol=1e-10)


def test_few_states_are_some_of_the_batch_and_never_of_merged_inputs():
    x = rows()
    merged, _, _ = merge_duplicates(x, 16)
    assert few_states(Inputs(x), 0).rows is x
    assert few_states(Inputs(x), SAMPLES).rows is x
    assert few_states(merged, 5) is merged
    few = np.asarray(few_states(Inputs(x), 40).rows)
    assert few.shape == (40, WIDTH)
    assert {*map(tuple, few)} <= {*map(tuple, np.asarray(x))}
    assert len({*map(tuple, few)}) > 6, "a batch has 12 kinds of rows, and an even draw sees most of them"


def test_signal_is_the_cosine_with_the_last_constraint_gradient(problem):
    def signal(last):
        return problem.step(problem.policy, problem.samples, (9.0, -50.0), take=jax.jit(remembering(last)))[1]

    def remembering(last):
        def take(policy, samples, values, ready, wall):
            def bound(change):
                return values + jnp.stack([change[1] + 0.5 * change[0], change[0]])

            return trust_region_step(
                policy, Inputs(problem.x), samples, bound, jnp.array(2.0), ready, CONFIG, last
            )

        return take

    first = signal(None)
    assert first.signal == 0
    np.testing.assert_allclose(signal(first.direction).signal, 1, atol=1e-3)
    np.testing.assert_allclose(signal(-first.direction).signal, -1, atol=1e-3)


def test_the_radius_goes_linearly_to_its_end_and_bounds_the_step(problem):
    shrinking = replace(CONFIG, target_kl_end=CONFIG.target_kl / 10)
    assert CONFIG.radius(0.7) == CONFIG.target_kl
    np.testing.assert_allclose(
        [shrinking.radius(p) for p in (0, 0.5, 1)], CONFIG.target_kl * np.array([1, 0.55, 0.1])
    )

    @jax.jit
    def late(policy, samples, values, ready, wall):
        return trust_region_step(
            policy,
            Inputs(problem.x),
            samples,
            lambda z: values + z,
            jnp.array(2.0),
            ready,
            shrinking,
            progress=1.0,
        )

    policy, report = problem.step(problem.policy, problem.samples, (-50.0, -50.0), take=late)
    moved = mean_kl(policy, problem.policy, problem.x)
    assert 0.2 * shrinking.target_kl_end < moved <= shrinking.target_kl_end * (1 + 1e-4)
    np.testing.assert_allclose(
        report_metrics(report)["kl_fraction"], moved / shrinking.target_kl_end, rtol=1e-3
    )


def test_a_safe_problem_improves_the_reward_within_the_trust_region(problem):
    policy, report = problem.step(problem.policy, problem.samples, (-50.0, -50.0))
    assert report.tier == Tier.NOMINAL
    assert bool(report.accepted)
    signal = problem.samples.reward_advantage
    assert surrogate(policy, problem, signal) > surrogate(problem.policy, problem, signal)
    assert (
        0.2 * CONFIG.target_kl < mean_kl(policy, problem.policy, problem.x) <= CONFIG.target_kl * (1 + 1e-4)
    )
    np.testing.assert_allclose(report.kl, mean_kl(policy, problem.policy, problem.x), rtol=1e-3)


def test_zero_costs_leave_the_reward_step_alone(problem):
    """Nothing costs anything: the constraints have no gradient, and the step is that of TRPO."""
    free = changed(problem.samples, cost_advantages=np.zeros((2, SAMPLES), np.float32))
    unconstrained, report = problem.step(problem.policy, free, (-1.0, -1.0))
    assert report.tier == Tier.NOMINAL
    assert bool(report.accepted)
    far, _ = problem.step(problem.policy, problem.samples, (-50.0, -50.0))
    for one, other in zip(jax.tree.leaves(unconstrained), jax.tree.leaves(far), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize(
    ("values", "tier"),
    [
        ((0.02, -0.01), Tier.NOMINAL),
        ((50.0, -1.0), Tier.BOUND_RESTORATION),
        ((50.0, 50.0), Tier.MEAN_RESTORATION),
    ],
)
def test_every_tier_respects_the_trust_region_and_what_it_must_not_worsen(problem, values, tier):
    policy, report = problem.step(problem.policy, problem.samples, values)
    assert report.tier == tier
    assert bool(report.accepted)
    assert mean_kl(policy, problem.policy, problem.x) <= CONFIG.target_kl * (1 + 1e-4)
    z, z_square = (2 * surrogate(policy, problem, signal) for signal in problem.samples.cost_advantages)
    start = [2 * float(signal.mean()) for signal in problem.samples.cost_advantages]
    z, z_square = z - start[0], z_square - start[1]
    bound_change = z_square + 0.5 * z - z**2
    np.testing.assert_allclose(report.surrogate, [bound_change, z], rtol=1e-2, atol=1e-5)
    np.testing.assert_allclose(report.values, values, atol=1e-4)
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


def test_it_never_moves_without_a_sound_reason(problem):
    """Not ready, advantages or values that are not finite: the policy is the same, bit for bit."""
    samples, safe = problem.samples, (-1.0, -1.0)
    reward, costs = samples.reward_advantage, samples.cost_advantages
    cases = {
        "not ready": (samples, safe, False),
        "no episode yet": (samples, (np.nan, np.nan), True),
        "infinite cost": (samples, (np.inf, 0.0), True),
        "reward NaN": (changed(samples, reward_advantage=spoilt(reward, 0, np.nan)), safe, True),
        "cost NaN": (changed(samples, cost_advantages=spoilt(costs, (1, 0), np.nan)), safe, True),
        "cost advantage infinite": (
            changed(samples, cost_advantages=spoilt(costs, (0, 0), np.inf)),
            safe,
            True,
        ),
    }
    for name, (data, values, ready) in cases.items():
        policy, report = problem.step(problem.policy, data, values, ready)
        assert same(policy, problem.policy), name
        assert report.tier == Tier.NO_STEP, name
        assert not report.accepted, name
        assert float(report.kl) == 0, name


def test_an_unreachable_constraint_without_gradient_is_not_chased_in_a_random_direction(problem):
    """c >= 0 with b = 0: no step can help, and the reward must not be raised at the constraint's expense."""
    free = changed(problem.samples, cost_advantages=np.zeros((2, SAMPLES), np.float32))
    policy, report = problem.step(problem.policy, free, (1.0, 1.0))
    assert report.tier == Tier.NO_STEP
    assert same(policy, problem.policy)


def test_a_rejected_line_search_leaves_the_policy_bit_identical(problem):
    """The model sees a slope, but every trial point is unacceptable."""
    policy, report = problem.step(problem.policy, problem.samples, (-1e-3, -1.0), wall=1e3)
    assert report.tier == Tier.NOMINAL
    assert not report.accepted
    assert int(report.backtracks) == CONFIG.backtracks
    assert same(policy, problem.policy)
    assert float(report.kl) == 0


@pytest.mark.parametrize("problem", ["categorical"], indirect=True)
def test_merged_inputs_take_the_same_step(problem):
    merged, _, exact = merge_duplicates(problem.x, 16)
    assert exact
    on_merged = jax.jit(lambda *data: problem.take(merged, *data))
    values = (0.02, -0.01)
    policy, report = problem.step(problem.policy, problem.samples, values, take=on_merged)
    plain, plain_report = problem.step(problem.policy, problem.samples, values)
    np.testing.assert_allclose(report.kl, plain_report.kl, rtol=1e-3)
    np.testing.assert_allclose(report.predicted, plain_report.predicted, rtol=1e-2, atol=1e-5)
    start, one, other = (ravel_pytree(each)[0] for each in (problem.policy, policy, plain))
    assert np.linalg.norm(one - other) < 1e-2 * np.linalg.norm(other - start)


def test_a_policy_that_lost_its_return_turns_to_the_reward_while_it_restores(problem):
    def gains(config):
        """Gain of the reward by a step: restoring with all its return, with half of it gone, safe with half gone."""

        @jax.jit
        def take(value, lost):
            def bound(change):
                return jnp.stack([value + change[1] + 0.5 * change[0], change[0] - 50.0])

            return trust_region_step(
                problem.policy, Inputs(problem.x), problem.samples, bound, jnp.array(2.0), jnp.array(True),
                config, lost=lost,
            )  # fmt: skip

        results = [take(value, lost) for value, lost in ((900.0, 0.0), (900.0, 0.5), (-50.0, 0.5))]
        assert all(report.accepted for _, report in results)
        return [surrogate(policy, problem, problem.samples.reward_advantage) for policy, _ in results]

    deaf, careful = gains(CONFIG), gains(replace(CONFIG, tolerated_loss=0.2))
    assert deaf[0] == deaf[1]
    assert careful[1] > careful[0] + 1e-3
    np.testing.assert_allclose((careful[0], careful[2]), (deaf[0], deaf[2]), rtol=1e-4)


@pytest.mark.parametrize("alike", [True, False])
def test_halves_of_the_environments_tell_signal_from_noise(problem, alike: bool):
    """Both halves of the batch give the same gradient, or opposite ones."""
    count = SAMPLES // 3
    first = np.arange(SAMPLES) < count
    pattern = np.tile(problem.samples.cost_advantages[:, :count], 3)
    samples = changed(
        problem.samples,
        action=jnp.concatenate([problem.samples.action[:count]] * 3),
        cost_advantages=pattern if alike else np.where(first, -pattern, pattern),
        half=first,
    )
    config = replace(CONFIG, signal_between="environments")

    def bound(change):
        return jnp.stack([900.0 + change[1] + 0.5 * change[0], change[0] - 50.0])

    @jax.jit
    def take(samples):
        inputs = Inputs(jnp.concatenate([problem.x[:count]] * 3))
        return trust_region_step(
            problem.policy, inputs, samples, bound, jnp.array(2.0), jnp.array(True), config
        )[1]

    # Alike: b_1 = b_2 = b. Opposite: b_1 = -b_2, and b = (2/3 - 1/3) b_2.
    np.testing.assert_allclose(take(samples).signal, 1 if alike else -9, rtol=2e-2)
    alone = changed(samples, half=np.ones(SAMPLES, bool))
    assert take(alone).signal == 0
