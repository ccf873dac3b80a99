"""The window of recent episodes against a plain list, and what its moments mean."""

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from canary.numerics.costs import cost_moments, empty_window, record_episodes
from canary.types import EpisodeEnds

RING, TIME, LANES = 12, 3, 2


def ends(ended, valid, cost, length):
    """Episode records [time, env], of return 3 - cost; what did not end holds junk."""
    ended, valid = np.asarray(ended, bool), np.asarray(valid, bool)
    return EpisodeEnds(
        jnp.asarray(ended), jnp.asarray(valid), 3 - jnp.asarray(cost, jnp.float32), jnp.asarray(cost, jnp.float32),
        jnp.asarray(length, jnp.int32), jnp.zeros(ended.shape, bool),
    )  # fmt: skip


def whole(costs, lengths=None):
    """A batch in which exactly these episodes ended, all valid."""
    costs = np.asarray(costs, float)[:, None]
    lengths = np.ones_like(costs) if lengths is None else np.asarray(lengths)[:, None]
    return ends(np.ones(costs.shape), np.ones(costs.shape), costs, lengths)


record = jax.jit(record_episodes)
summarise = jax.jit(cost_moments, static_argnums=1)

flag = st.lists(st.booleans(), min_size=TIME * LANES, max_size=TIME * LANES)
batch = st.tuples(flag, flag, st.integers(0, 10**6))


@settings(deadline=None, max_examples=30)
@given(st.lists(batch, min_size=1, max_size=8), st.sampled_from([1, 5, 20]))
def test_ring_agrees_with_a_list(batches, least):
    window, kept = empty_window(RING), []
    for ended, valid, seed in batches:
        rng = np.random.default_rng(seed)
        shape = (TIME, LANES)
        ended, valid = np.reshape(ended, shape), np.reshape(valid, shape)
        cost, length = rng.integers(0, 50, shape), rng.integers(1, 9, shape)
        window = record(window, ends(ended, valid, cost, length))
        new = [
            (cost[i, j], length[i, j])
            for i in range(TIME)
            for j in range(LANES)
            if ended[i, j] and valid[i, j]
        ]
        kept += new
        # The newest, as far as the ring remembers.
        expected = kept[-min(max(len(new), least), RING) :]
        found = summarise(window, least, 5.0)
        assert int(window.total) == len(kept)
        assert int(window.new) == len(new)
        assert int(found.count) == len(expected)
        if expected:
            costs, lengths = np.array(expected, float).T
            np.testing.assert_allclose(found.mean, costs.mean() / 5, rtol=1e-5)
            np.testing.assert_allclose(found.variance, costs.var() / 25, rtol=1e-4, atol=1e-6)
            np.testing.assert_allclose(found.length, lengths.mean(), rtol=1e-5)
        else:
            assert np.isnan([found.mean, found.variance, found.length]).all()


def test_no_episode_is_nan_and_never_cost_zero():
    moments = summarise(empty_window(RING), 5, 1.0)
    assert np.isnan([moments.mean, moments.variance, moments.length]).all()
    assert moments.count == 0
    # Nor do episodes that started in mid-clock count, however cheap they are.
    window = record(empty_window(RING), ends([[1, 1]], [[0, 0]], [[0.0, 0.0]], [[1, 1]]))
    assert window.total == 0
    assert np.isnan(summarise(window, 5, 1.0).mean)


def test_moments_of_the_shaped_cost_are_those_of_shaped_episodes():
    window = record(empty_window(RING), whole([0, 2, 4, 6, 30]))
    found = cost_moments(window, 5, 10.0, 0.2)
    shaped = np.array([0, 0, 0.25, 0.5, 1])
    np.testing.assert_allclose(
        [found.mean, found.variance], [shaped.mean(), shaped.var()], rtol=1e-5
    )
