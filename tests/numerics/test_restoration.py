"""Restoring steps that turn to the reward: as long as before, never against the constraint, and only where needed."""

from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from canary.numerics.restoration import lost_share, reward_need, turn_to_reward
from canary.numerics.trust_region import Tier, solve

solve, turn_to_reward = jax.jit(solve), jax.jit(turn_to_reward)

seeds = st.integers(0, 2**31 - 1)
needs = st.floats(0, 1)


def steps(seed: int, need: float):
    """A problem in Euclidean space (H = 1): vectors (g, b_1, b_2), values, the plain and the turned solution."""
    random = np.random.default_rng(seed)
    vectors = random.normal(size=(3, 5)) * 10 ** random.uniform(-2, 2, (3, 1))
    radius = 10 ** random.uniform(-4, 0)
    reach = np.sqrt(2 * radius) * np.linalg.norm(vectors[1:], axis=1)
    values = random.uniform(-1.5, 3, 2) * reach
    gram = jnp.asarray(vectors @ vectors.T)
    plain = solve(gram, jnp.asarray(values), radius)
    return vectors, values, plain, turn_to_reward(plain, gram, jnp.asarray(values), jnp.asarray(need))


@settings(deadline=None)
@given(seeds, needs)
def test_a_turned_step_is_as_long_and_what_it_promises_is_true(seed: int, need: float):
    with jax.enable_x64(True):
        vectors, values, plain, turned = steps(seed, need)
        before, after = np.asarray(plain.coefficients) @ vectors, np.asarray(turned.coefficients) @ vectors
        assert turned.tier == plain.tier
        np.testing.assert_allclose(np.linalg.norm(after), np.linalg.norm(before), rtol=1e-6)
        np.testing.assert_allclose(turned.predicted_objective, vectors[0] @ after, rtol=1e-6, atol=1e-9)
        np.testing.assert_allclose(
            turned.predicted_values, values + vectors[1:] @ after, rtol=1e-6, atol=1e-9
        )
        if plain.tier in (Tier.NOMINAL, Tier.NO_STEP) or need == 0:
            np.testing.assert_array_equal(turned.coefficients, plain.coefficients)


@settings(deadline=None)
@given(seeds, needs)
def test_the_mean_that_is_restored_never_rises(seed: int, need: float):
    with jax.enable_x64(True):
        vectors, values, plain, turned = steps(seed, need)
        if plain.tier == Tier.MEAN_RESTORATION:
            small = (
                1e-9 * np.linalg.norm(vectors[2]) * np.linalg.norm(np.asarray(plain.coefficients) @ vectors)
            )
            assert turned.predicted_values[1] <= values[1] + small


@settings(deadline=None)
@given(seeds)
def test_more_need_more_reward(seed: int):
    with jax.enable_x64(True):
        gains = [float(steps(seed, need)[3].predicted_objective) for need in (0.0, 0.3, 0.7, 1.0)]
        assert all(more >= less - 1e-9 * abs(less) - 1e-12 for less, more in pairwise(gains))


def test_where_reward_and_constraint_conflict_the_rest_of_the_reward_is_what_counts():
    vectors = jnp.array([[1.0, 1.0], [0.0, 1.0]])  # half of the reward is paid for with risk
    gram, values = vectors @ vectors.T, jnp.array([100.0])
    plain = solve(gram, values, 0.5)
    for need, step in ((0.0, [0, -1]), (0.5, [np.sqrt(0.5), -np.sqrt(0.5)]), (1.0, [1, 0])):
        turned = turn_to_reward(plain, gram, values, jnp.array(need))
        np.testing.assert_allclose(turned.coefficients @ vectors, step, atol=1e-6)


@pytest.mark.parametrize("reward", [[0.0, 0.0], [0.0, 1.0]])
def test_a_reward_without_gradient_or_right_against_the_constraint_changes_nothing(reward):
    vectors = jnp.array([reward, [0.0, 1.0]])
    gram, values = vectors @ vectors.T, jnp.array([100.0])
    plain = solve(gram, values, 0.5)
    turned = turn_to_reward(plain, gram, values, jnp.array(1.0))
    np.testing.assert_array_equal(turned.coefficients, plain.coefficients)


def test_what_is_lost_and_what_it_calls_for():
    assert float(lost_share(0.5, 1.0)) == pytest.approx(0.5)
    assert float(lost_share(-3.0, -2.0)) == pytest.approx(0.5)
    assert float(lost_share(jnp.nan, 1.0)) == 0
    assert float(lost_share(0.3, -jnp.inf)) == 0
    assert float(lost_share(2.0, 1.0)) == 0
    needs = [float(reward_need(jnp.array(lost), 0.2)) for lost in (0.0, 0.2, 0.4, 0.6, 2.0)]
    assert needs == pytest.approx([0, 0, 0.5, 1, 1], abs=1e-6)
