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
        solution, image, residual = map(
            np.asarray,
            solve_dense(jnp.asarray(hessian), jnp.asarray(rhs), iterations=14, tolerance=1e-9),
        )
    np.testing.assert_allclose(solution, np.linalg.solve(hessian, rhs), rtol=1e-6, atol=1e-7)
    assert residual <= 1e-9
    np.testing.assert_allclose(image, rhs, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("iterations", [0, 1, 3])
def test_the_image_is_the_product_with_the_solution_even_when_cut_short(iterations):
    hessian, rhs = problem(0, 20)
    calls = []

    def product(vector):
        calls.append(1)
        return jnp.asarray(hessian) @ vector

    with jax.enable_x64(True):
        solution, image, residual = conjugate_gradient(
            product, jnp.asarray(rhs), iterations=iterations, tolerance=1e-12
        )
    assert len(calls) <= 1  # traced once, inside the loop only
    np.testing.assert_allclose(image, hessian @ np.asarray(solution), atol=1e-12)
    # After k products the residual is orthogonal to b, Hb, ..., H^(k-1) b, and not to the next.
    krylov = [np.linalg.matrix_power(hessian, k) @ rhs for k in range(iterations + 1)]
    along = np.array([v @ (rhs - np.asarray(image)) / (v @ v) for v in krylov])
    np.testing.assert_allclose(along[:-1], 0, atol=1e-12)
    relative = np.linalg.norm(rhs - np.asarray(image)) / np.linalg.norm(rhs)
    assert residual == pytest.approx(relative, abs=1e-12)
    assert abs(along[-1]) > 1e-9


def test_a_zero_right_hand_side_gives_zeros():
    for found in solve_dense(jnp.eye(4), jnp.zeros(4), iterations=10, tolerance=1e-6):
        assert not np.asarray(found).any()


@pytest.mark.parametrize("bad", [jnp.nan, jnp.inf])
def test_a_non_finite_right_hand_side_ends_at_once_and_shows(bad):
    solution, *_ = solve_dense(
        jnp.eye(3), jnp.array([1.0, bad, 0.0]), iterations=1_000_000_000, tolerance=1e-6
    )
    assert not np.isfinite(np.asarray(solution)).all()


def test_a_non_finite_product_ends_the_iteration_with_the_solution_found_so_far():
    solution, image, residual = conjugate_gradient(
        lambda v: v * jnp.nan, jnp.ones(3), iterations=1_000_000_000, tolerance=1e-6
    )
    assert not np.asarray(solution).any()
    assert not np.asarray(image).any()
    assert residual == pytest.approx(1, rel=1e-6)


def test_negative_curvature_is_not_followed():
    hessian = jnp.diag(jnp.array([2.0, -1.0]))
    solution, image, _ = solve_dense(hessian, jnp.array([0.1, 1.0]), iterations=50, tolerance=1e-6)
    assert not np.asarray(solution).any()
    np.testing.assert_allclose(image, hessian @ solution, atol=1e-6)
