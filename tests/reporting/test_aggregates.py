"""Aggregates over seeds against numbers worked out by hand, and intervals against the truth they
should cover."""

import numpy as np
import pytest

from canary.reporting.aggregates import (
    bootstrap,
    collapse_time,
    improvement_probability,
    interquartile_mean,
    margin_per_jitter,
    running_rate,
)


def test_the_interquartile_mean_leaves_out_a_quarter_at_each_end():
    assert interquartile_mean([[1, 2, 3, 4, 5, 6, 7, 100]]) == 4.5  # 3, 4, 5, 6
    assert interquartile_mean([[1, 100], [2, 3]]) == 2.5
    assert interquartile_mean([[7]]) == 7


def test_a_bootstrap_of_equal_seeds_has_no_width_and_is_the_same_every_time():
    assert bootstrap(interquartile_mean, [[3, 3, 3], [5, 5, 5]]) == (4, 4, 4)
    scores = [[0.1, 0.5, 0.2, 0.9], [3.0, 1.0, 2.0]]
    assert bootstrap(interquartile_mean, scores) == bootstrap(interquartile_mean, scores)


def test_seeds_are_drawn_within_their_stratum():
    """Two environments of one seed each: there is nothing else to draw."""
    assert bootstrap(interquartile_mean, [[1.0], [9.0]]) == (5, 5, 5)


def test_a_bootstrap_interval_covers_the_mean_about_as_often_as_it_says():
    rng = np.random.default_rng(3)
    mean = lambda strata: float(np.mean(strata[0]))  # noqa: E731
    found = [bootstrap(mean, [rng.normal(size=30)], 0.9, draws=400) for _ in range(200)]
    share = np.mean([lower <= 0 <= upper for _, lower, upper in found])
    assert 0.82 < share < 0.96


def test_the_probability_of_improvement_by_hand():
    """1 beats 0 and ties with 1, 2 beats both: (1 + 1/2 + 1 + 1) / 4."""
    assert improvement_probability([[1, 2]], [[0, 1]]).value == 3.5 / 4
    assert improvement_probability([[1, 2], [0, 0]], [[0, 1], [1, 1]]).value == 3.5 / 8
    assert improvement_probability([[5, 6]], [[1, 2]]) == (1, 1, 1)
    with pytest.raises(ValueError, match="same environments"):
        improvement_probability([[1]], [[1], [2]])


def test_the_margin_per_jitter_of_the_papers_rows():
    # EcoAnt, Canary
    assert margin_per_jitter(0.02, 0.002, 0.0014) == pytest.approx(12.857, abs=1e-3)
    assert margin_per_jitter(0.02, 0.041, 0.0099) == pytest.approx(-2.121, abs=1e-3)  # IcyLake, CPO
    assert margin_per_jitter(0.02, 0.01, 0.0) is None
    assert margin_per_jitter(None, 0.01, 0.01) is None
    assert margin_per_jitter(0.02, 0.01, None) is None


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
