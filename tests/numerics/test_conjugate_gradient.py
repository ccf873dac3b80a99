"""Conjugate gradients against direct solution, and where the iteration could go wrong."""

from functools import partial

import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings

from canary.numerics.conjugate_gradient import conjugate_gradient
from problems.random_programs import random_hessian


def problem(seed: int, dimension: int, condition: float = 30.0):
    rng = np.random.default_rng(seed)
    return random_hessian(rng, dimension, condition), rng.normal(size=dimension)


@partial(jax.jit, static_argnames=("iterations", "tolerance"))
def solve_dense(hessian, rhs, *, iterations, tolerance):
    return conjugate_gradient(
        lambda v: hessian @ v, rhs, iterations=iterations, tolerance=tolerance
    )


@given(st.integers(0, 2**32))
@settings(max_examples=25, deadline=None)
def test_it_solves_a_positive_definite_system_in_as_many_steps_as_dimensions(seed):
    hessian, rhs = problem(seed, 12)
    with jax.enable_x64(True):
        result = solve_dense(jnp.asarray(hessian), jnp.asarray(rhs), iterations=14, tolerance=1e-9)
        np.testing.assert_allclose(
            result.solution, np.linalg.solve(hessian, rhs), rtol=1e-6, atol=1e-7
        )
        assert result.residual_norm <= 1e-9


@pytest.mark.parametrize("iterations", [0, 1, 3, 10])
def test_the_image_is_the_product_with_the_solution_even_when_cut_short(iterations):
    hessian, rhs = problem(0, 20)
    calls = []

    def product(vector):
        calls.append(1)
        return jnp.asarray(hessian) @ vector

    with jax.enable_x64(True):
        result = conjugate_gradient(
            product, jnp.asarray(rhs), iterations=iterations, tolerance=1e-12
        )
    assert len(calls) <= 1  # traced once, inside the loop only
    assert result.iterations_used == iterations
    np.testing.assert_allclose(result.image, hessian @ np.asarray(result.solution), atol=1e-12)
    relative = np.linalg.norm(rhs - np.asarray(result.image)) / np.linalg.norm(rhs)
    assert result.residual_norm == pytest.approx(relative, abs=1e-12)


def test_a_zero_right_hand_side_gives_zeros():
    result = solve_dense(jnp.eye(4), jnp.zeros(4), iterations=10, tolerance=1e-6)
    assert result.iterations_used == 0
    assert not np.asarray(result.solution).any()
    assert not np.asarray(result.image).any()
    assert result.residual_norm == 0


@pytest.mark.parametrize("bad", [jnp.nan, jnp.inf])
def test_a_non_finite_right_hand_side_ends_at_once_and_shows(bad):
    result = solve_dense(
        jnp.eye(3), jnp.array([1.0, bad, 0.0]), iterations=1_000_000_000, tolerance=1e-6
    )
    assert result.iterations_used <= 1
    assert not np.isfinite(np.asarray(result.solution)).all()


def test_a_non_finite_product_ends_the_iteration_with_the_solution_found_so_far():
    result = conjugate_gradient(
        lambda v: v * jnp.nan, jnp.ones(3), iterations=1_000_000_000, tolerance=1e-6
    )
    assert result.iterations_used == 1
    assert not np.asarray(result.solution).any()
    assert result.residual_norm == pytest.approx(1, rel=1e-6)


def test_negative_curvature_is_not_followed():
    hessian = jnp.diag(jnp.array([2.0, -1.0]))
    result = solve_dense(hessian, jnp.array([0.1, 1.0]), iterations=50, tolerance=1e-6)
    assert not np.asarray(result.solution).any()
    np.testing.assert_allclose(result.image, hessian @ result.solution, atol=1e-6)
