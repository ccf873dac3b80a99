"""Clopper-Pearson bounds against textbook values, definition and simulation; plans against brute
force."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom, binomtest

from canary.certification.plan import clean_episodes, planned_episodes
from canary.errors import CanaryError
from canary.numerics.binomial import (
    clopper_pearson_interval,
    clopper_pearson_lower,
    clopper_pearson_upper,
)


def test_textbook_values():
    assert clopper_pearson_upper(0, 10, 0.95) == pytest.approx(0.2589, abs=5e-5)
    assert clopper_pearson_lower(10, 10, 0.95) == pytest.approx(1 - 0.2589, abs=5e-5)
    # Clopper and Pearson's own table: 4.9% to 17.6%
    lower, upper = clopper_pearson_interval(10, 100, 0.95)
    assert (float(lower), float(upper)) == pytest.approx((0.0490, 0.1762), abs=5e-5)
    assert clopper_pearson_upper(7, 7, 0.95) == 1
    assert clopper_pearson_lower(0, 7, 0.95) == 0


@given(st.integers(1, 3000), st.floats(0, 1), st.floats(0.5, 0.9999))
def test_bounds_solve_their_equations(episodes: int, share: float, confidence: float):
    violations, alpha = round(share * episodes), 1 - confidence
    upper = clopper_pearson_upper(violations, episodes, confidence)
    lower = clopper_pearson_lower(violations, episodes, confidence)
    assert 0 <= lower <= violations / episodes <= upper <= 1
    if violations < episodes:
        assert binom.cdf(violations, episodes, upper) == pytest.approx(alpha, rel=1e-6)
    if violations > 0:
        assert binom.sf(violations - 1, episodes, lower) == pytest.approx(alpha, rel=1e-6)


def test_the_interval_is_scipys():
    for violations, episodes in ((0, 10), (3, 17), (20, 1000), (1000, 1000)):
        expected = binomtest(violations, episodes).proportion_ci(0.9, method="exact")
        low, high = clopper_pearson_interval(violations, episodes, 0.9)
        assert (float(low), float(high)) == pytest.approx((expected.low, expected.high), rel=1e-9)


def test_coverage_over_thousands_of_policies():
    """Each policy has its own known P and a sample of its own; each bound may fail for 5% of
    them."""
    random = np.random.default_rng(0)
    rates = np.concatenate([random.uniform(0, 0.1, 10_000), random.uniform(0, 1, 10_000)])
    episodes = random.integers(20, 3000, rates.size)
    violations = random.binomial(episodes, rates)
    slack = 4 * np.sqrt(0.05 * 0.95 / rates.size)
    for misses in (
        clopper_pearson_upper(violations, episodes, 0.95) < rates,
        clopper_pearson_lower(violations, episodes, 0.95) > rates,
    ):
        assert 0.02 < misses.mean() <= 0.05 + slack  # not trivially wide either


@pytest.mark.parametrize("confidence", [0.9, 0.95, 0.999])
@pytest.mark.parametrize("episodes", [1, 30, 149, 400])
def test_coverage_is_exact_for_every_rate(episodes: int, confidence: float):
    rates = np.linspace(0.001, 0.999, 211)[:, None]
    counts = np.arange(episodes + 1)
    chance = binom.pmf(counts, episodes, rates)
    for covers in (
        clopper_pearson_upper(counts, episodes, confidence) >= rates,
        clopper_pearson_lower(counts, episodes, confidence) <= rates,
    ):
        assert (chance * covers).sum(1).min() >= confidence - 1e-9


def test_clean_episodes():
    assert clean_episodes(0.02, 0.95) == 149
    assert clean_episodes(0.05, 0.95) == 59
    assert clean_episodes(0.01, 0.99) == 459
    assert clopper_pearson_upper(0, 149, 0.95) <= 0.02 < clopper_pearson_upper(0, 148, 0.95)
    assert planned_episodes(0.02, 0.0) == 149


@pytest.mark.parametrize(
    ("epsilon", "rate"),
    [(0.02, 0.01), (0.02, 0.005), (0.02, 0.04), (0.1, 0.07), (0.1, 0.15), (0.5, 0.4), (0.9, 0.99)],
)
def test_plans_are_the_smallest_that_work(epsilon: float, rate: float):
    def power(episodes: int) -> float:
        counts = np.arange(episodes + 1)
        if rate < epsilon:
            decided = clopper_pearson_upper(counts, episodes, 0.95) <= epsilon
        else:
            decided = clopper_pearson_lower(counts, episodes, 0.95) > epsilon
        return float(binom.pmf(counts, episodes, rate) @ decided)

    planned = planned_episodes(epsilon, rate, confidence=0.95, power=0.9)
    assert planned is not None
    assert power(planned) >= 0.9
    assert all(power(episodes) < 0.9 for episodes in range(max(1, planned - 400), planned))


def test_hopeless_plans_and_mistakes():
    assert planned_episodes(0.02, 0.02) is None
    assert planned_episodes(0.02, 0.0199) is None
    assert planned_episodes(1e-8, 0.0) is None
    with pytest.raises(CanaryError, match="confidence must lie strictly between 0 and 1"):
        planned_episodes(0.02, 0.01, confidence=95.0)
    with pytest.raises(CanaryError, match="Epsilon must lie strictly"):
        clean_episodes(0.0, 0.95)
    with pytest.raises(CanaryError, match=r"rate within \[0, 1\]"):
        planned_episodes(0.02, -0.1)
