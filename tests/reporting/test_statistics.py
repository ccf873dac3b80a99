"""Statistics against values computed by hand, by scipy and by simulation."""

import math

import numpy as np
import pytest
import scipy.stats

from canary.reporting.statistics import (
    collapse_time,
    is_violation,
    over_seeds,
    running_rate,
    safe_fraction,
    violation_jitter,
)


def test_a_violation_is_strictly_above_the_limit_and_nan_is_not_safe():
    costs = np.array([5.5, 5.500001, 0.0, math.nan, math.inf])
    assert is_violation(costs, 5.5).tolist() == [False, True, False, True, True]


def test_jitter_by_hand():
    """Two blocks: 1 of 4 and 3 of 4. Var = 0.125, pooled 0.5, floor 0.25 / 4, excess 0.0625."""
    violated = np.array([1, 0, 0, 0, 1, 1, 1, 0], bool)
    iteration = np.array([10, 10, 11, 11, 12, 12, 13, 13])
    assert violation_jitter(violated, iteration, 10, 14, blocks=2) == pytest.approx(0.25)


def test_unequal_counts_enter_the_floor_block_by_block():
    violated = np.array([1, 0] * 5 + [1] * 30 + [0] * 10, bool)
    iteration = np.array([0] * 10 + [1] * 40)
    pooled = 35 / 50
    expected = (0.75 - 0.5) ** 2 / 2 - pooled * (1 - pooled) * (1 / 10 + 1 / 40) / 2
    assert violation_jitter(violated, iteration, 0, 2, blocks=2) == pytest.approx(
        math.sqrt(expected)
    )


def test_a_constant_probability_has_almost_no_jitter_and_a_wandering_one_has_its_own():
    generator = np.random.default_rng(0)
    iteration = np.repeat(np.arange(120), 50)
    frozen = [
        violation_jitter(generator.random(6000) < 0.05, iteration, 0, 120) for _ in range(200)
    ]
    # Without the floor the jitter would be sqrt(0.05 * 0.95 / 500) = 0.0097. The excess is noise of
    # standard deviation 0.0097^2 sqrt(2 / 11) = 4e-5, negative (hence 0) half of the time.
    excess = np.array([value**2 for value in frozen if value is not None])
    assert excess.mean() < 2.5e-5
    assert (excess == 0).mean() > 0.4
    wandering = 0.05 + 0.04 * np.sign((iteration // 10) % 2 - 0.5)  # block by block 0.01 and 0.09
    found = [
        violation_jitter(generator.random(6000) < wandering, iteration, 0, 120) for _ in range(50)
    ]
    assert np.mean(found) == pytest.approx(0.04 * math.sqrt(12 / 11), rel=0.05)


def test_unknown_seeds_are_left_out_and_never_zero():
    assert over_seeds([None]) == over_seeds([]) == (None, None, None)
    assert over_seeds([2.0, None]) == (2.0, None, None)
    assert over_seeds([0.1, None, 0.3])[:2] == pytest.approx((0.2, 0.1))
    assert safe_fraction([0.02, 0.021, None], 0.02) == 0.5
    assert safe_fraction([None], 0.02) is None


def test_the_interval_over_seeds_is_students():
    mean, error, half = over_seeds([1.0, 2.0, 6.0])
    assert error == pytest.approx((7 / 3) ** 0.5)
    expected = scipy.stats.t.interval(0.95, 2, loc=3.0, scale=(7 / 3) ** 0.5)
    assert (mean - half, mean + half) == pytest.approx(expected)


def test_the_running_rate_of_the_last_episodes():
    violated = np.array([1, 0, 1, 1, 0, 0], bool)
    iteration = np.array([0, 0, 1, 1, 1, 3])
    updates, rate = running_rate(violated, iteration, 2)
    assert updates.tolist() == [0, 1, 3]
    assert rate.tolist() == [0.5, 0.5, 0.0]
    updates, rate = running_rate(violated, iteration, 5)
    assert updates.tolist() == [1, 3]
    assert rate.tolist() == [0.6, 0.4]
    assert running_rate(violated, iteration, 7)[0].size == 0


def test_the_collapse_runs_from_the_last_high_to_the_first_low():
    steps = np.array([10, 20, 30, 40, 50, 60])
    assert collapse_time(steps, np.array([0.4, 0.35, 0.3, 0.2, 0.1, 0.5])) == 20
    assert collapse_time(steps, np.array([0.4, 0.2, 0.4, 0.2, 0.2, 0.0])) == 30
    assert collapse_time(steps, np.array([0.4, 0.4, 0.4, 0.2, 0.2, 0.2])) is None
    assert collapse_time(steps, np.array([0.2, 0.2, 0.0, 0.2, 0.2, 0.2])) is None
