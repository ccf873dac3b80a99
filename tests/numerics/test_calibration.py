"""The calibrated multiple is an upper confidence bound on the needed one, and never more than Cantelli's."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from canary.numerics.calibration import LEAST_MULTIPLE, allowed_exceedances, tail_multiple

RING = 512


@pytest.mark.parametrize(("epsilon", "confidence"), [(0.02, 0.95), (0.1, 0.99), (0.5, 0.9)])
def test_allowed_exceedances_are_the_binomial_quantile(epsilon, confidence):
    allowed = allowed_exceedances(400, epsilon, confidence)
    for count in (0, 1, 10, 149, 400):
        fits = [k for k in range(count + 1) if stats.binom.cdf(k, count, epsilon) <= 1 - confidence]
        assert allowed[count] == (max(fits) if fits else -1)


def multiple(costs, epsilon=0.02, confidence=0.95):
    ring = np.zeros(RING, np.float32)
    ring[: len(costs)] = costs
    counts = jnp.arange(RING) < len(costs)
    return float(
        jax.jit(tail_multiple, static_argnums=(2, 3))(jnp.asarray(ring), counts, epsilon, confidence)
    )


def test_too_few_episodes_leave_cantellis_multiple():
    assert multiple(np.arange(100) % 7) == pytest.approx(7.0)
    assert multiple(np.ones(500)) == pytest.approx(7.0)  # no spread, nothing to measure in multiples of


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 10**6), st.sampled_from([0.02, 0.05, 0.1]))
def test_between_one_deviation_and_cantelli(seed, epsilon):
    costs = np.random.default_rng(seed).exponential(size=500)
    assert LEAST_MULTIPLE <= multiple(costs, epsilon) <= (1 / epsilon - 1) ** 0.5 + 1e-5


def test_the_bound_covers_the_quantile_as_often_as_it_says():
    """On exponential costs the needed multiple is log(1 / epsilon) - 1."""
    epsilon, rng = 0.05, np.random.default_rng(0)
    needed = np.log(1 / epsilon)
    found = [
        np.sort(costs)[::-1][allowed_exceedances(300, epsilon, 0.95)[300]] >= needed
        for costs in rng.exponential(size=(2000, 300))
    ]
    assert 0.945 <= np.mean(found) <= 0.985


def test_it_is_the_standardised_order_statistic():
    costs = np.random.default_rng(3).exponential(size=400)
    k = allowed_exceedances(400, 0.05, 0.95)[400]
    expected = (np.sort(costs)[::-1][k] - costs.mean()) / costs.std()
    assert multiple(costs, 0.05) == pytest.approx(expected, rel=1e-4)
