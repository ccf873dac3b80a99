"""The inequalities that the formulas promise, on distributions small enough to be exact."""

from fractions import Fraction

import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings

from canary.numerics import risk

thresholds = st.sampled_from([0.01, 0.02, 0.05, 0.1, 0.25, 0.29, 0.5, 0.9])
# Quarters: sums and squares are exact, so ties at the limit are real ties.
costs = st.lists(st.integers(-40, 40).map(lambda n: n / 4), min_size=1, max_size=40)

# Samples of any length, in one compiled shape: the rest is marked as not valid.
value_at_risk = jax.jit(risk.value_at_risk)
conditional_value_at_risk = jax.jit(risk.conditional_value_at_risk)
cantelli_value = jax.jit(risk.cantelli_value)
cantelli_probability = jax.jit(risk.cantelli_probability)
provably_violating = jax.jit(risk.provably_violating)


def padded(sample):
    filler = [1e6] * (40 - len(sample))
    return jnp.asarray(sample + filler), jnp.arange(40) < len(sample)


@st.composite
def distributions(draw):
    """A discrete distribution as (support, probabilities)."""
    support = np.array(
        draw(
            st.lists(st.integers(-20, 60).map(lambda n: n / 4), min_size=1, max_size=6, unique=True)
        )
    )
    weights = np.array(
        draw(st.lists(st.integers(1, 1000), min_size=len(support), max_size=len(support))), float
    )
    return support, weights / weights.sum()


def moments(distribution):
    support, probability = distribution
    mean = probability @ support
    return mean, probability @ (support - mean) ** 2


def exceedance(distribution, limit):
    support, probability = distribution
    return probability[support > limit].sum()


@given(distributions(), st.integers(-20, 60).map(lambda n: n / 4))
@settings(max_examples=80, deadline=None)
def test_cantelli_probability_bounds_every_distribution(distribution, limit):
    mean, variance = moments(distribution)
    assert exceedance(distribution, limit) <= cantelli_probability(mean, variance, limit) + 1e-5


def test_cantelli_probability_is_attained_by_the_two_point_distribution():
    """No bound from two moments can be smaller: mass p at the limit's far side, just above it."""
    probability, limit, low = 0.02, 1.0, 0.0
    distribution = np.array([low, limit + 1e-6]), np.array([1 - probability, probability])
    mean, variance = moments(distribution)
    assert cantelli_probability(mean, variance, limit) == pytest.approx(probability, rel=1e-3)


@pytest.mark.parametrize(
    ("mean", "variance", "probability"),
    [
        (1.0, 0.0, 0.0),
        (1.0, 0.1, 1.0),
        (1.5, 0.0, 1.0),
        (1.5, 0.1, 1.0),
        (0.5, 0.0, 0.0),
        (0.5, 0.25, 0.5),
    ],
)
def test_cantelli_probability_at_the_edges(mean, variance, probability):
    assert cantelli_probability(mean, variance, 1.0) == pytest.approx(probability)


@given(distributions(), st.integers(-20, 60).map(lambda n: n / 4), thresholds)
@settings(max_examples=100, deadline=None)
def test_a_safe_cantelli_value_implies_the_chance_constraint(distribution, limit, epsilon):
    mean, variance = moments(distribution)
    value = float(cantelli_value(mean, variance, limit, epsilon))
    if mean <= limit and value <= -1e-4:
        assert exceedance(distribution, limit) <= epsilon + 1e-9
        assert cantelli_probability(mean, variance, limit) <= epsilon + 1e-5
    if mean <= limit and value > 1e-2:
        assert cantelli_probability(mean, variance, limit) > epsilon - 1e-5


@given(distributions(), st.integers(-20, 60).map(lambda n: n / 4), thresholds)
@settings(max_examples=100, deadline=None)
def test_the_provably_violating_region_violates(distribution, limit, epsilon):
    mean, variance = moments(distribution)
    if provably_violating(mean, np.sqrt(variance), limit, epsilon) and mean > limit + 1e-5:
        assert exceedance(distribution, limit) > epsilon - 1e-6


@given(costs, thresholds)
@settings(max_examples=100, deadline=None)
def test_value_at_risk_is_the_smallest_level_with_few_enough_exceedances(sample, epsilon):
    array, valid = padded(sample)
    level = float(value_at_risk(array, epsilon, valid))
    allowed = Fraction(str(epsilon))

    def share_above(eta):
        return Fraction(sum(cost > eta for cost in sample), len(sample))

    assert level in sample
    assert share_above(level) <= allowed
    assert all(share_above(lower) > allowed for lower in sample if lower < level)


@given(costs, thresholds)
@settings(max_examples=80, deadline=None)
def test_conditional_value_at_risk_is_the_minimum_over_thresholds(sample, epsilon):
    array, (filled, valid) = np.array(sample), padded(sample)
    found = float(conditional_value_at_risk(filled, epsilon, valid))
    grid = np.concatenate([array, np.linspace(array.min() - 1, array.max() + 1, 101)])
    brute = (grid + np.maximum(array - grid[:, None], 0).mean(axis=1) / epsilon).min()
    assert found == pytest.approx(brute, rel=1e-5, abs=1e-4)
    assert found >= float(value_at_risk(filled, epsilon, valid))
