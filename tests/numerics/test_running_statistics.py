"""Merged statistics equal those of all observations at once."""

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from canary.numerics.running_statistics import initial_statistics, merge, normalise


@settings(deadline=None, max_examples=12)
@given(st.lists(st.integers(1, 4), min_size=1, max_size=6), st.integers(0, 10**6))
def test_batches_merge_to_the_whole(sizes, seed):
    rng = np.random.default_rng(seed)
    batches = [rng.normal(5, 2, (size, 3, 2)) for size in sizes]
    statistics = initial_statistics(2)
    for batch in batches:
        statistics = merge(statistics, jnp.asarray(batch, jnp.float32))
    rows = np.concatenate(batches).reshape(-1, 2)
    assert statistics.count == len(rows)
    np.testing.assert_allclose(statistics.mean, rows.mean(0), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(
        statistics.squares / statistics.count, rows.var(0), rtol=1e-3, atol=1e-5
    )


def test_normalise_standardises_and_clips():
    rows = np.random.default_rng(1).normal([100, -3], [20, 0.1], (1000, 2))
    statistics = merge(initial_statistics(2), jnp.asarray(rows, jnp.float32))
    seen = np.asarray(normalise(statistics, jnp.asarray(rows, jnp.float32)))
    np.testing.assert_allclose([seen.mean(0), seen.std(0)], [[0, 0], [1, 1]], atol=1e-3)
    assert normalise(statistics, jnp.array([1e6, -1e6])).tolist() == [10.0, -10.0]


@pytest.mark.parametrize("number", [np.nan, np.inf, 1e38])
def test_one_observation_that_is_no_number_does_not_spoil_the_rest(number: float):
    rows = np.random.default_rng(0).normal(3.0, 2.0, (200, 2)).astype(np.float32)
    healthy = merge(initial_statistics(2), jnp.asarray(rows))
    sick = rows.copy()
    sick[17, 1] = number
    merged = merge(healthy, jnp.asarray(sick))
    assert all(np.isfinite(leaf).all() for leaf in (merged.mean, merged.squares, merged.count))
    expected = merge(healthy, jnp.asarray(rows))
    np.testing.assert_allclose(merged.mean, expected.mean, rtol=0.01)
    np.testing.assert_allclose(merged.squares, expected.squares, rtol=0.02)
    np.testing.assert_array_equal(merged.mean[0], expected.mean[0])
