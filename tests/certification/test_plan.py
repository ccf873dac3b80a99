"""Clopper-Pearson bounds against textbook values, definition and simulation; plans against brute
force."""

import numpy as np
import pytest
from scipy.stats import binom, binomtest

from canary.certification.plan import planned_episodes
from canary.numerics.statistics import (
    clopper_pearson_interval,
    clopper_pearson_lower,
    clopper_pearson_upper,
)


def test_the_interval_is_scipys():
    for violations, episodes in ((0, 10), (3, 17), (20, 1000), (1000, 1000)):
        expected = binomtest(violations, episodes).proportion_ci(0.9, method="exact")
        low, high = clopper_pearson_interval(violations, episodes, 0.9)
        assert (float(low), float(high)) == pytest.approx((expected.low, expected.high), rel=1e-9)


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


def test_episodes_without_any_violation():
    """The smallest n with (1 - epsilon)^n <= alpha."""
    assert planned_episodes(0.02, 0.0) == 149
    assert planned_episodes(0.05, 0.0) == 59
    assert planned_episodes(0.01, 0.0, confidence=0.99) == 459
    assert clopper_pearson_upper(0, 149, 0.95) <= 0.02 < clopper_pearson_upper(0, 148, 0.95)


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

    planned = planned_episodes(epsilon, rate, confidence=0.95)
    assert planned is not None
    assert power(planned) >= 0.9
    assert all(power(episodes) < 0.9 for episodes in range(max(1, planned - 400), planned))
