"""Merging equal inputs is exact or says that it is not."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from canary.algorithms.inputs import Inputs, merge_duplicates, on_distinct_rows
from canary.networks import make_mlp
from problems.trees import assert_close

SAMPLES, WIDTH, CAPACITY = 40, 5, 8
merge = jax.jit(partial(merge_duplicates, capacity=CAPACITY))


def batch(seed, kinds):
    """Rows of exactly `kinds` different kinds, in random order."""
    rng = np.random.default_rng(seed)
    distinct = rng.integers(0, 3, (kinds, WIDTH)) / 5.5
    distinct[:, 0] = np.arange(kinds) / 5.5
    which = np.concatenate([np.arange(kinds), rng.integers(0, kinds, SAMPLES - kinds)])
    return distinct[rng.permutation(which)].astype(np.float32)


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 10**6), st.integers(1, 20))
def test_merging_is_exact_up_to_the_capacity_and_says_so_beyond(seed, kinds):
    rows = batch(seed, kinds)
    merged, count, exact = merge(rows)
    assert bool(exact) == (kinds <= CAPACITY)
    assert count == kinds
    assert merged.rows.shape == (CAPACITY, WIDTH)
    reads = np.asarray(merged.row_of_sample)
    assert (reads.sum(1) == 1).all()
    assert set(np.unique(reads)) <= {0.0, 1.0}
    if exact:
        np.testing.assert_array_equal(merged.evaluate(lambda x: x), rows)
        assert len(np.unique(np.asarray(merged.rows)[reads.any(0)], axis=0)) == kinds


def test_rows_that_are_not_numbers_are_never_called_exact():
    rows = batch(0, 3)
    rows[7, 2] = np.nan
    assert not merge(rows)[2]


@pytest.fixture(scope="module")
def compute():
    """A loss and its gradient, on the batch or on distinct rows, and which of the two it was."""
    network = make_mlp(jax.random.key(0), (WIDTH, 16, 2), head_scale=1.0)
    target = np.random.default_rng(1).normal(size=(SAMPLES, 2)).astype(np.float32)

    def loss_and_gradient(inputs: Inputs, gathers: bool):
        def loss(network):
            values = inputs.gather(network(inputs.rows)) if gathers else inputs.evaluate(network)
            return jnp.mean((values - target) ** 2)

        return *jax.value_and_grad(loss)(network), jnp.array(inputs.merged)

    def on_batch(capacity: int, gathers: bool):
        of_inputs = partial(loss_and_gradient, gathers=gathers)
        return jax.jit(partial(on_distinct_rows, capacity=capacity, compute=of_inputs))

    return {(size, way): on_batch(size, way) for size in (0, CAPACITY) for way in (False, True)}


@pytest.mark.parametrize("gathers", [False, True])
@pytest.mark.parametrize(("kinds", "merged"), [(3, True), (CAPACITY, True), (CAPACITY + 1, False)])
def test_distinct_rows_give_the_plain_loss_and_gradient(compute, kinds, merged, gathers):
    rows = batch(3, kinds)
    loss, gradient, was_merged = compute[CAPACITY, gathers](rows)
    plain_loss, plain_gradient, plain = compute[0, False](rows)
    assert bool(was_merged) == merged
    assert not plain
    np.testing.assert_allclose(loss, plain_loss, rtol=1e-6)
    assert_close(gradient, plain_gradient, rtol=1e-4, atol=1e-6)
