"""Advantages against sums written out."""

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from canary.algorithms.advantages import centred, generalised_advantages, standardised

GAMMA, DECAY = 0.9, 0.8


def summed_out(signal, value, next_value, stops, done, gamma, decay):
    """A_t = sum over k >= t, in its episode and rollout, of (gamma * decay)^(k - t) * delta_k."""
    time, lanes = signal.shape
    result = np.zeros_like(signal)
    for lane in range(lanes):
        for t in range(time):
            for k in range(t, time):
                future = 0.0 if stops[k, lane] else gamma * next_value[k, lane]
                delta = signal[k, lane] + future - value[k, lane]
                result[t, lane] += (gamma * decay) ** (k - t) * delta
                if done[k, lane]:
                    break
    return result


def gae_and_target(signal, value, next_value, stops, done, *, gamma=GAMMA, **decays):
    return generalised_advantages(
        jnp.asarray(signal), jnp.asarray(value), jnp.asarray(next_value),
        stops=jnp.asarray(stops), done=jnp.asarray(done), discount=gamma, **decays,
    )  # fmt: skip


def gae(signal, value, next_value, stops, done, gamma=GAMMA, decay=DECAY):
    return gae_and_target(signal, value, next_value, stops, done, gamma=gamma, decay=decay)[0]


def random_batch(seed, time=40, lanes=6):
    """Values unrelated between steps, so that reading a wrong one shows; ends of both kinds."""
    rng = np.random.default_rng(seed)
    signal, value, next_value = rng.normal(size=(3, time, lanes))
    terminated = rng.random((time, lanes)) < 0.1
    truncated = ~terminated & (rng.random((time, lanes)) < 0.1)
    return signal, value, next_value, terminated, truncated


def test_reward_advantages_match_the_sum_and_bootstrap_at_truncation():
    signal, value, next_value, terminated, truncated = random_batch(0)
    done = terminated | truncated
    assert terminated[:-1].any()
    assert truncated[:-1].any()
    with jax.enable_x64(True):
        found = gae(signal, value, next_value, terminated, done)
    np.testing.assert_allclose(
        found,
        summed_out(signal, value, next_value, terminated, done, GAMMA, DECAY),
        rtol=1e-12,
        atol=1e-12,
    )
    # The value after a truncation counts, with one discount; that after a termination does not.
    with jax.enable_x64(True):
        after_truncation = gae(signal, value, next_value + truncated, terminated, done)
        after_termination = gae(signal, value, next_value + 5 * terminated, terminated, done)
    np.testing.assert_allclose(
        (np.asarray(after_truncation) - np.asarray(found))[truncated], GAMMA, rtol=1e-9
    )
    np.testing.assert_array_equal(after_termination, found)


def test_cost_advantages_match_the_sum_and_end_with_the_episode():
    signal, value, next_value, terminated, truncated = random_batch(1)
    done = terminated | truncated
    with jax.enable_x64(True):
        found = gae(signal, value, next_value, done, done)
        elsewhere = gae(signal, value, next_value + 5 * done, done, done)
    np.testing.assert_allclose(
        found,
        summed_out(signal, value, next_value, done, done, GAMMA, DECAY),
        rtol=1e-12,
        atol=1e-12,
    )
    np.testing.assert_array_equal(elsewhere, found)


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 2**31 - 1))
def test_centring_keeps_units_and_standardising_does_not(seed):
    rng = np.random.default_rng(seed)
    advantage = rng.normal(3, 5, 50)
    weight = rng.uniform(0.1, 1, 50)
    moved = np.asarray(centred(jnp.asarray(advantage), jnp.asarray(weight)))
    np.testing.assert_allclose((weight * moved).sum(), 0, atol=1e-3)
    np.testing.assert_allclose(np.diff(moved), np.diff(advantage), rtol=1e-3, atol=1e-4)
    scaled = np.asarray(standardised(jnp.asarray(advantage)))
    np.testing.assert_allclose([scaled.mean(), scaled.std()], [0, 1], atol=1e-5)
