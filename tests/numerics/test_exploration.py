"""Steps that keep exploring: what they promise, and that they keep to the trust region and the constraints."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from canary.networks import Categorical, Gaussian
from canary.numerics.exploration import exploration_need, solve_exploring
from canary.numerics.trust_region import Tier, solve

solve, solve_exploring = jax.jit(solve), jax.jit(solve_exploring)

seeds = st.integers(0, 2**31 - 1)
needs = st.floats(0, 1)


def problem(seed: int, size: int = 6) -> tuple[np.ndarray, np.ndarray, float]:
    """Vectors (g, b_1, b_2, h) in Euclidean space (H = 1), constraint values, and a radius."""
    random = np.random.default_rng(seed)
    vectors = random.normal(size=(4, size)) * 10 ** random.uniform(-2, 2, (4, 1))
    radius = 10 ** random.uniform(-4, 0)
    reach = np.sqrt(2 * radius) * np.linalg.norm(vectors[1:3], axis=1)
    return vectors, random.uniform(-1.5, 1.5, 2) * reach, radius


def steps(seed: int, need: float):
    vectors, values, radius = problem(seed)
    gram = jnp.asarray(vectors @ vectors.T)
    plain = solve(gram[:3, :3], jnp.asarray(values), radius)
    turned = solve_exploring(gram, jnp.asarray(values), radius, jnp.asarray(need))
    return vectors, values, radius, plain, turned, np.asarray(turned.coefficients) @ vectors


@settings(deadline=None)
@given(seeds)
def test_without_need_it_is_the_plain_step(seed: int):
    with jax.enable_x64(True):
        _, _, _, plain, turned, _ = steps(seed, 0.0)
        np.testing.assert_allclose(turned.coefficients[:3], plain.coefficients, rtol=1e-9, atol=1e-12)
        assert turned.coefficients[3] == 0


@settings(deadline=None)
@given(seeds, needs)
def test_the_tier_stays_and_the_step_keeps_to_the_trust_region(seed: int, need: float):
    with jax.enable_x64(True):
        _, _, radius, plain, turned, step = steps(seed, need)
        assert turned.tier == plain.tier
        assert step @ step / 2 <= radius * (1 + 1e-6)


@settings(deadline=None)
@given(seeds, needs)
def test_steps_that_improve_stay_and_those_that_restore_still_do(seed: int, need: float):
    with jax.enable_x64(True):
        vectors, values, radius, plain, turned, step = steps(seed, need)
        changes = vectors[1:3] @ step
        np.testing.assert_allclose(turned.predicted_values, values + changes, rtol=1e-6, atol=1e-9)
        small = 1e-5 * np.sqrt(2 * radius) * np.linalg.norm(vectors[1:3], axis=1)
        if turned.tier == Tier.NOMINAL:
            np.testing.assert_array_equal(turned.coefficients[:3], plain.coefficients)
            assert turned.coefficients[3] == 0
        if turned.tier == Tier.MEAN_RESTORATION:
            assert changes[1] <= small[1]


@settings(deadline=None)
@given(seeds)
def test_more_need_more_entropy(seed: int):
    with jax.enable_x64(True):
        gains = []
        for need in (0.0, 0.5, 1.0):
            vectors, _, _, _, _, step = steps(seed, need)
            gains.append(vectors[3] @ step / np.linalg.norm(vectors[3]))
        assert gains[0] <= gains[1] + 1e-6
        assert gains[1] <= gains[2] + 1e-6


def test_a_restoring_step_is_shared_with_entropy():
    vectors = jnp.array([[1.0, 0, 0], [0, 1, 0], [0, 0, 1]])  # g, b, h at right angles
    solution = solve_exploring(vectors @ vectors.T, jnp.array([100.0]), 0.5, jnp.array(1.0))
    assert solution.tier == Tier.BOUND_RESTORATION
    np.testing.assert_allclose(solution.coefficients, [0, -0.5, 0.5], atol=1e-6)
    assert solution.predicted_values[0] == pytest.approx(99.5)


def test_an_entropy_without_gradient_changes_nothing():
    gram = jnp.diag(jnp.array([1.0, 1.0, 0.0]))
    solution = solve_exploring(gram, jnp.array([100.0]), 0.5, jnp.array(1.0))
    np.testing.assert_allclose(solution.coefficients, [0, -1, 0], atol=1e-6)


def test_need_grows_as_exploration_is_lost():
    assert [float(exploration_need(jnp.array(left), 0.02)) for left in (1.0, 0.02, 0.01, 0.0)] == [
        0,
        0,
        0.5,
        1,
    ]


def test_exploration_is_a_share_of_the_actions():
    assert float(Categorical(jnp.zeros((7, 4))).exploration()) == pytest.approx(1)
    assert float(Categorical(jnp.array([[50.0, 0, 0, 0]])).exploration()) == pytest.approx(0, abs=1e-6)
    half = Categorical(jnp.array([[0.0, 0, -50, -50]]))
    assert float(half.exploration()) == pytest.approx(1 / 3)
    # A Gaussian as wide as the uniform law on [-1, 1] has its entropy, log 2 per action.
    std = 2 / np.sqrt(2 * np.pi * np.e)
    assert float(Gaussian(jnp.zeros((3, 2)), jnp.full((3, 2), np.log(std))).exploration()) == pytest.approx(1)
