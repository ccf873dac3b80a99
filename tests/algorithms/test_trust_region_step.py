"""The constrained step: its curvature, its promises, and the cases in which it must not move."""

from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

from canary.algorithms import gradient_signal
from canary.algorithms.inputs import Inputs, merge_duplicates
from canary.algorithms.natural_gradient import curvature, fisher_product
from canary.algorithms.step_report import report_metrics, worst_case_metrics
from canary.algorithms.surrogates import Samples, Surrogates
from canary.algorithms.trust_region_step import TrustRegionConfig, search
from canary.environments.protocol import Continuous, Discrete
from canary.networks import make_policy
from canary.numerics.tiers import Tier
from problems.steps import take_one_step

SPACES = {"categorical": Discrete(3), "gaussian": Continuous(2)}
SAMPLES, WIDTH = 96, 4
CONFIG = TrustRegionConfig()


def rows(kinds=12):
    rng = np.random.default_rng(0)
    return jnp.asarray(
        rng.normal(size=(kinds, WIDTH))[rng.integers(0, kinds, SAMPLES)], jnp.float32
    )


def surrogates_of(problem, samples, values, wall=0.0, wall_at=1e-5, inputs=None, policy=None):
    """Two constraints of the given values; the wall is invisible to the gradient and bars what lies
    beyond it."""
    policy = problem.policy if policy is None else policy
    inputs = Inputs(problem.x) if inputs is None else inputs

    def bound(change):
        hidden = wall * (jnp.abs(change[0]) > wall_at)
        return values + jnp.stack(
            [change[1] + 0.5 * change[0] - change[0] ** 2 + hidden, change[0]]
        )

    return Surrogates(policy, inputs, inputs.evaluate(policy), samples, bound, jnp.array(2.0))


@pytest.fixture(scope="module", params=list(SPACES))
def problem(request):
    """A policy off its initial point, a batch of its actions, and the step as a function of the
    data."""
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
    samples = Samples(action, reward, costs, jnp.ones(SAMPLES), jnp.arange(SAMPLES) % 2 == 0)
    problem = SimpleNamespace(policy=policy, samples=samples, x=x)

    @jax.jit
    def take(samples, values, ready, wall, wall_at):
        surrogates = surrogates_of(problem, samples, values, wall, wall_at)
        new, step = take_one_step(surrogates, CONFIG, ready=ready)
        return new, step, report_metrics(surrogates, step)

    def step(samples, values, ready=True, wall=0.0, wall_at=1e-5):
        """The new policy, everything about the step, and the metrics."""
        numbers = (jnp.float32(wall), jnp.float32(wall_at))
        return take(samples, jnp.array(values, jnp.float32), jnp.array(ready), *numbers)

    problem.step = step
    return problem


def changed(samples, **fields):
    """The samples with some fields replaced."""
    return Samples(
        **{name: fields.get(name, getattr(samples, name)) for name in Samples.__dataclass_fields__}
    )


def mean_kl(new, old, x, weight=1.0):
    return float((new(x).kl_from(old(x)) * weight).mean())


def surrogate(policy, problem, signal):
    log_ratio = policy(problem.x).log_prob(problem.samples.action) - problem.policy(
        problem.x
    ).log_prob(problem.samples.action)
    return float((jnp.exp(log_ratio) * signal).mean())


def same(one, other):
    return all(
        np.array_equal(a, b)
        for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    )


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


@pytest.mark.parametrize("merge", [False, True])
def test_curvature_counts_both_means_of_the_divergence(problem, merge):
    """A state's weight is the mean of 1 and of g_t over its mean: neither divergence is
    overlooked."""
    weight = jnp.asarray(0.97 ** (jnp.arange(SAMPLES) % 50), jnp.float32)
    samples = changed(problem.samples, weight=weight)
    inputs = merge_duplicates(problem.x, 16)[0] if merge else Inputs(problem.x)
    surrogates = surrogates_of(problem, samples, jnp.zeros(2), inputs=inputs)
    theta = surrogates.parameters()
    vector = jax.random.normal(jax.random.key(5), theta.shape)
    old = problem.policy(problem.x)

    def divergence(t):
        kl = surrogates.policy_at(t)(problem.x).kl_from(old)
        return 0.5 * kl.mean() + 0.5 * (kl * weight).sum() / weight.sum()

    expected = jax.jit(lambda: jax.jvp(jax.grad(divergence), (theta,), (vector,))[1])()
    found = jax.jit(lambda: curvature(surrogates, theta, 0, 0.0)(vector))()
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-5)


def test_few_states_estimate_the_curvature_and_merged_inputs_use_them_all(problem):
    surrogates = surrogates_of(problem, problem.samples, jnp.zeros(2))
    merged = surrogates_of(
        problem, problem.samples, jnp.zeros(2), inputs=merge_duplicates(problem.x, 16)[0]
    )
    theta = surrogates.parameters()
    vector = jax.random.normal(jax.random.key(5), theta.shape)

    def product(surrogates, states):
        return np.asarray(jax.jit(lambda: curvature(surrogates, theta, states, 0.0)(vector))())

    whole, few = product(surrogates, 0), product(surrogates, 60)
    np.testing.assert_array_equal(product(surrogates, SAMPLES), whole)
    np.testing.assert_array_equal(product(merged, 5), product(merged, 0))
    error = np.linalg.norm(few - whole) / np.linalg.norm(whole)
    assert 1e-4 < error < 0.5


# --- the trust region ---


def test_the_radius_goes_linearly_to_its_end_and_bounds_the_step(problem):
    shrinking = replace(CONFIG, target_kl_end=CONFIG.target_kl / 10)
    assert CONFIG.radius(0.7) == pytest.approx(CONFIG.target_kl)
    geometric = replace(shrinking, target_kl=0.04, target_kl_end=0.0004, target_kl_path="geometric")
    np.testing.assert_allclose(
        [geometric.radius(p) for p in (0, 0.5, 1)], [0.04, 0.004, 0.0004], rtol=1e-5
    )
    radii = [shrinking.radius(p) for p in (0, 0.5, 1)]
    np.testing.assert_allclose(radii, CONFIG.target_kl * np.array([1, 0.55, 0.1]), rtol=1e-5)

    @jax.jit
    def late():
        surrogates = surrogates_of(problem, problem.samples, jnp.array([-50.0, -50.0]))
        policy, step = take_one_step(surrogates, shrinking, radius=shrinking.radius(1.0))
        return policy, report_metrics(surrogates, step)

    policy, metrics = late()
    moved = mean_kl(policy, problem.policy, problem.x)
    assert 0.2 * shrinking.target_kl_end < moved <= shrinking.target_kl_end * (1 + 1e-4)
    np.testing.assert_allclose(metrics["kl_fraction"], moved / shrinking.target_kl_end, rtol=1e-3)


@pytest.mark.parametrize("most", [True, False])
def test_the_line_search_bounds_the_plain_and_the_discounted_divergence(problem, most):
    """Nearly all weight on the states where a step changes most, or least: it is shortened until
    both means fit."""
    free, step, _ = problem.step(problem.samples, (-50.0, -50.0))
    moved = np.asarray(free(problem.x).kl_from(problem.policy(problem.x)))
    weight = jnp.asarray(
        np.where((moved > np.quantile(moved, 0.8)) == most, 1.0, 0.01), jnp.float32
    )
    relative = weight / weight.mean()
    full = step.search.point - step.linear.theta

    @jax.jit
    def shortened(radius):
        surrogates = surrogates_of(
            problem, changed(problem.samples, weight=weight), jnp.array([-50.0, -50.0])
        )
        found = search(surrogates, step.linear, full, jnp.array(Tier.NOMINAL), radius, CONFIG)
        return surrogates.policy_at(found.point), found

    plain, discounted = (mean_kl(free, problem.policy, problem.x, w) for w in (1.0, relative))
    assert (discounted > 1.5 * plain) == most
    policy, found = shortened(jnp.asarray(0.9 * max(plain, discounted)))
    assert bool(found.accepted)
    assert found.attempts_used == 2  # 0.8 of the step has about 0.64 of the divergence
    both = [mean_kl(policy, problem.policy, problem.x, w) for w in (1.0, relative)]
    np.testing.assert_allclose(found.evaluation.kl, max(both), rtol=1e-3)


def test_a_safe_problem_improves_the_reward_within_the_trust_region(problem):
    policy, step, metrics = problem.step(problem.samples, (-50.0, -50.0))
    assert step.tier == Tier.NOMINAL
    assert bool(step.search.accepted)
    signal = problem.samples.reward_advantage
    assert surrogate(policy, problem, signal) > surrogate(problem.policy, problem, signal)
    moved = mean_kl(policy, problem.policy, problem.x)
    assert 0.2 * CONFIG.target_kl < moved <= CONFIG.target_kl * (1 + 1e-4)
    np.testing.assert_allclose(metrics["kl"], moved, rtol=1e-3)


def test_zero_costs_leave_the_reward_step_alone(problem):
    """Nothing costs anything: the constraints have no gradient, and the step is that of TRPO."""
    free = changed(problem.samples, cost_advantages=jnp.zeros((2, SAMPLES)))
    unconstrained, step, _ = problem.step(free, (-1.0, -1.0))
    assert step.tier == Tier.NOMINAL
    assert bool(step.search.accepted)
    far, _, _ = problem.step(problem.samples, (-50.0, -50.0))
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
    policy, step, metrics = problem.step(problem.samples, values)
    assert step.tier == tier
    assert bool(step.search.accepted)
    assert mean_kl(policy, problem.policy, problem.x) <= CONFIG.target_kl * (1 + 1e-4)
    z, z_square = (
        2 * surrogate(policy, problem, signal) for signal in problem.samples.cost_advantages
    )
    start = [2 * float(signal.mean()) for signal in problem.samples.cost_advantages]
    z, z_square = z - start[0], z_square - start[1]
    bound_change = z_square + 0.5 * z - z**2
    np.testing.assert_allclose(
        step.search.evaluation.constraint_changes, [bound_change, z], rtol=1e-2, atol=1e-5
    )
    np.testing.assert_allclose(step.linear.levels.constraints, values, atol=1e-4)
    np.testing.assert_allclose(
        metrics["bound_surrogate_change"], bound_change, rtol=1e-2, atol=1e-5
    )
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


def test_a_share_of_the_restoration_leaves_the_rest_of_the_step_to_the_reward(problem):
    """Out of reach by far: a share of 0.6 still restores, and gains more reward than restoring with
    all it has."""

    @partial(jax.jit, static_argnums=0)
    def take(config):
        surrogates = surrogates_of(problem, problem.samples, jnp.array([50.0, -50.0]))
        return take_one_step(surrogates, config)

    (_, whole), (_, eased) = take(CONFIG), take(replace(CONFIG, restoration_share=0.6))
    for step in (whole, eased):
        assert step.tier == Tier.BOUND_RESTORATION
        assert bool(step.search.accepted)
    fall, eased_fall = (
        float(step.search.evaluation.constraint_changes[0]) for step in (whole, eased)
    )
    assert fall < eased_fall < 0
    assert eased.search.evaluation.reward_change > whole.search.evaluation.reward_change + 1e-3


@pytest.mark.parametrize("share", [1.0, 0.9])
def test_the_share_that_is_restored_falls_with_the_return_that_is_lost(share):
    """Nothing changes up to the tolerated loss; at three times as much a step goes for the reward
    alone."""
    config = replace(CONFIG, restoration_share=share, tolerated_loss=0.2)
    shares = [float(config.share(jnp.asarray(lost))) for lost in (0.0, 0.2, 0.3, 0.5, 0.6, 5.0)]
    np.testing.assert_allclose(shares[:2], share, rtol=1e-6)
    np.testing.assert_allclose(shares[4:], 0, atol=1e-6)
    assert share > shares[2] > shares[3] > 0
    assert replace(config, tolerated_loss=None).share(jnp.asarray(5.0)) == share


def test_a_policy_that_lost_its_return_turns_to_the_reward_while_it_restores(problem):
    def gains(config):
        """Gain of the reward by a step: restoring with all its return, with half of it gone, safe
        with half gone."""

        @jax.jit
        def take(value, lost):
            surrogates = surrogates_of(problem, problem.samples, jnp.stack([value, -50.0]))
            return take_one_step(surrogates, config, lost=lost)[1].search

        found = [take(value, lost) for value, lost in ((900.0, 0.0), (900.0, 0.5), (-50.0, 0.5))]
        assert all(result.accepted for result in found)
        return [float(result.evaluation.reward_change) for result in found]

    deaf, careful = gains(CONFIG), gains(replace(CONFIG, tolerated_loss=0.2))
    assert deaf[0] == deaf[1]
    assert careful[1] > careful[0] + 1e-3
    np.testing.assert_allclose((careful[0], careful[2]), (deaf[0], deaf[2]), rtol=1e-2)


def test_lost_coverage_has_a_price_while_the_constraint_is_violated(problem):
    """The price keeps a restoring step from giving up actions; a constraint that holds pays none,
    bit for bit."""

    @jax.jit
    def take(value, price):
        plain = surrogates_of(problem, problem.samples, jnp.stack([value, -50.0]))
        policy, step = take_one_step(replace(plain, exploration=price), CONFIG)
        return policy(problem.x).coverage().mean(), step

    (_, free), (_, priced) = take(-50.0, 0.0), take(-50.0, 1.0)
    assert same(free.linear, priced.linear)
    (lost, free), (kept, priced) = take(50.0, 0.0), take(50.0, 1.0)
    assert free.tier == priced.tier == Tier.BOUND_RESTORATION
    np.testing.assert_array_equal(free.linear.levels.constraints, priced.linear.levels.constraints)
    assert float(kept) > float(lost) + 1e-4


def test_the_price_of_coverage_is_gone_after_a_third_of_the_run():
    config = replace(CONFIG, exploration=0.1)
    np.testing.assert_allclose(
        [float(config.price(share)) for share in (0, 1 / 6, 1 / 3, 1)], [0.1, 0.05, 0, 0], atol=1e-7
    )


# --- when not to move ---


def test_it_never_moves_without_a_sound_reason(problem):
    """Not ready, advantages or values that are not finite: the policy is the same, bit for bit."""
    samples, safe = problem.samples, (-1.0, -1.0)
    reward, costs = samples.reward_advantage, samples.cost_advantages
    cases = {
        "not ready": (samples, safe, False),
        "no episode yet": (samples, (np.nan, np.nan), True),
        "infinite cost": (samples, (np.inf, 0.0), True),
        "reward NaN": (changed(samples, reward_advantage=reward.at[0].set(jnp.nan)), safe, True),
        "cost NaN": (changed(samples, cost_advantages=costs.at[1, 0].set(jnp.nan)), safe, True),
        "cost infinite": (
            changed(samples, cost_advantages=costs.at[0, 0].set(jnp.inf)),
            safe,
            True,
        ),
    }
    for name, (data, values, ready) in cases.items():
        policy, step, metrics = problem.step(data, values, ready)
        assert same(policy, problem.policy), name
        assert step.tier == Tier.NO_STEP, name
        assert not step.search.accepted, name
        assert float(metrics["kl"]) == 0, name
        assert float(metrics["bound_promise"]) == 0, name


def test_an_unreachable_constraint_without_gradient_is_not_chased_in_a_random_direction(problem):
    """c >= 0 with b = 0: no step can help, and the reward must not be raised at the constraint's
    expense."""
    free = changed(problem.samples, cost_advantages=jnp.zeros((2, SAMPLES)))
    policy, step, _ = problem.step(free, (1.0, 1.0))
    assert step.tier == Tier.NO_STEP
    assert same(policy, problem.policy)


def test_a_rejected_line_search_leaves_the_policy_bit_identical_and_promises_nothing(problem):
    """The model sees a slope, but every trial point is unacceptable."""
    policy, step, metrics = problem.step(problem.samples, (-1e-3, -1.0), wall=1e3)
    assert step.tier == Tier.NOMINAL
    assert not step.search.accepted
    assert int(metrics["backtracks"]) == CONFIG.backtracks
    assert same(policy, problem.policy)
    assert float(metrics["kl"]) == float(metrics["bound_promise"]) == 0


def test_a_promise_is_that_of_the_step_that_is_taken(problem):
    """The line search shortens a step by 0.8 per attempt, and with it what the linear model
    promises of it."""
    values = (-50.0, -50.0)
    _, step, metrics = problem.step(problem.samples, values)
    full = float(step.solution.predicted_values[0] - step.linear.levels.constraints[0])
    assert step.search.attempts_used == 1
    np.testing.assert_allclose(metrics["bound_promise"], full, rtol=2e-2, atol=1e-4)
    away = abs(float(step.search.evaluation.constraint_changes[1]))
    _, step, metrics = problem.step(problem.samples, values, wall=1e3, wall_at=0.9 * away)
    assert 1 < step.search.attempts_used < CONFIG.backtracks
    shrunk = CONFIG.shrink ** (int(step.search.attempts_used) - 1)
    np.testing.assert_allclose(metrics["bound_promise"], shrunk * full, rtol=2e-2, atol=1e-4)


def test_merged_inputs_take_the_same_step(problem):
    merged, _, exact = merge_duplicates(problem.x, 16)
    assert exact

    @jax.jit
    def take():
        surrogates = surrogates_of(
            problem, problem.samples, jnp.array([0.02, -0.01]), inputs=merged
        )
        return take_one_step(surrogates, CONFIG)

    policy, step = take()
    plain, plain_step, _ = problem.step(problem.samples, (0.02, -0.01))
    np.testing.assert_allclose(
        step.search.evaluation.kl, plain_step.search.evaluation.kl, rtol=1e-3
    )
    start, one, other = (ravel_pytree(each)[0] for each in (problem.policy, policy, plain))
    assert np.linalg.norm(one - other) < 1e-2 * np.linalg.norm(other - start)


@pytest.mark.parametrize("problem", ["gaussian"], indirect=True)
def test_deviations_never_leave_their_floor_for_good(problem):
    """A step that would take log deviations below -5 ends at -5, where the next gradient can lift
    them again."""
    low = eqx.tree_at(lambda p: p.log_std, problem.policy, jnp.array([-5.0, -4.9]))
    # Far too near to the mode: smaller deviations would fit better
    action = low(problem.x).mode() + 1e-4
    samples = changed(problem.samples, action=action, reward_advantage=jnp.ones(SAMPLES))

    @jax.jit
    def take():
        surrogates = surrogates_of(problem, samples, jnp.array([-50.0, -50.0]), policy=low)
        return take_one_step(surrogates, CONFIG, radius=0.05)

    policy, step = take()
    assert bool(step.search.accepted)
    assert float(policy.log_std.min()) >= -5


# --- the paper's worst case ---


@pytest.mark.parametrize(
    ("values", "wall", "holds"),
    [
        ((-50.0, -50.0), 0.0, True),
        ((-1e-3, -1.0), 1e3, False),  # nominal, and rejected
        ((50.0, -1.0), 0.0, False),
        ((50.0, 50.0), 0.0, False),
    ],
)
def test_worst_case_is_stated_for_accepted_nominal_steps_only(problem, values, wall, holds):
    policy, step, _ = problem.step(problem.samples, values, wall=wall)
    surrogates = surrogates_of(problem, problem.samples, jnp.array(values))
    metrics = worst_case_metrics(surrogates, policy, step, lambda largest: {"worst": largest.sum()})
    new, old = (p(problem.x).log_prob(problem.samples.action) for p in (policy, problem.policy))
    largest = np.abs(np.exp(new - old) * problem.samples.cost_advantages).max(1)
    if holds:
        assert float(metrics["worst"]) == pytest.approx(largest.sum(), rel=1e-4)
    else:
        assert np.isnan(metrics["worst"])


# --- signal and noise in the gradient ---


@pytest.mark.parametrize("alike", [True, False])
def test_halves_of_the_environments_tell_signal_from_noise(problem, alike: bool):
    """Both parts of the batch give the same gradient, or opposite ones."""
    count = SAMPLES // 3
    first = jnp.arange(SAMPLES) < count
    pattern = jnp.tile(problem.samples.cost_advantages[:, :count], 3)
    samples = changed(
        problem.samples,
        action=jnp.concatenate([problem.samples.action[:count]] * 3),
        cost_advantages=pattern if alike else jnp.where(first, -pattern, pattern),
        in_half=first,
    )

    @jax.jit
    def measured(samples):
        inputs = Inputs(jnp.concatenate([problem.x[:count]] * 3))
        surrogates = surrogates_of(problem, samples, jnp.array([900.0, -50.0]), inputs=inputs)
        _, step = take_one_step(surrogates, CONFIG)
        return gradient_signal.measure(surrogates, step, CONFIG)

    # Alike: b_1 = b_2 = b. Opposite: b_1 = -b_2, and b = (2/3 - 1/3) b_2.
    np.testing.assert_allclose(measured(samples), 1 if alike else -9, rtol=0.1)
    # One environment tells nothing
    assert np.isnan(measured(changed(samples, in_half=jnp.ones(SAMPLES, bool))))


def test_the_share_of_signal_is_a_mean_without_a_bias_towards_its_start():
    signal = gradient_signal.no_signal()
    assert float(signal.share) == 0
    shares = []
    for measured in (0.4, 0.4, np.nan, 0.4):
        signal = signal.averaged_with(jnp.asarray(measured))
        shares.append(float(signal.share))
    np.testing.assert_allclose(shares, 0.4, rtol=1e-5)  # a mean that started at 0 would say 0.02
    for _ in range(200):
        signal = signal.averaged_with(jnp.asarray(0.1))
    assert float(signal.share) == pytest.approx(0.1, abs=1e-3)


@pytest.mark.parametrize(("measured", "share"), [(3.0, 1.0), (-0.5, 0.0)])
def test_the_share_of_signal_is_a_share(measured, share):
    assert float(gradient_signal.no_signal().averaged_with(jnp.asarray(measured)).share) == share
