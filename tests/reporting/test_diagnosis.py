"""Stuck and timid seeds are named; seeds that are fine, on their way or new are not."""

from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from canary.constraints import Chance
from canary.reporting.diagnosis import WINDOW, SeedSeries, diagnose, joined, seed_series

UPDATES = 4 * WINDOW
LIMITED = Chance(limit=5.5, epsilon=0.02)


def series(*, rate=0.0, returns=1.0, restoring=False, bound=-1.0, updates=UPDATES):
    """A seed with 20 episodes per update; numbers may be arrays over the updates."""
    return SeedSeries(
        episodes=np.full(updates, 20),
        costs=np.where(
            np.arange(20 * updates) % 20 < np.repeat(np.full(updates, 20 * rate), 20), 9.0, 1.0
        ),
        returns=np.broadcast_to(np.asarray(returns, float), updates),
        restoring=np.broadcast_to(restoring, updates),
        bound=np.broadcast_to(np.asarray(bound, float), updates),
        entropy=np.full(updates, 0.05),
    )


@pytest.mark.parametrize(
    ("early", "words"),
    [(0.2, "its lowest value was"), (0.0, "in updates 1 to 25 it stayed within the limit")],
)
def test_a_stuck_seed_is_told_what_it_reached(early, words):
    rate = np.where(np.arange(UPDATES) < WINDOW, early, 0.2)
    warning = str(diagnose(series(rate=rate, restoring=True, bound=9.0), LIMITED))
    assert warning.startswith("stuck")
    assert "rate 0.2" in warning
    assert words in warning
    assert "--from" in warning


def test_a_seed_whose_constraint_comes_down_is_on_its_way():
    assert (
        diagnose(series(rate=0.2, restoring=True, bound=np.geomspace(50, 1, UPDATES)), LIMITED)
        is None
    )


def test_a_safe_seed_that_lost_its_return_is_timid():
    warning = diagnose(series(returns=np.linspace(1.0, 0.28, UPDATES)), LIMITED)
    assert str(warning).startswith("timid")
    assert "0.3" in str(warning)


def test_a_safe_seed_that_gives_its_return_for_a_bound_out_of_reach_is_told_so():
    falling = np.linspace(1.0, 0.28, UPDATES)
    vain = series(returns=falling, restoring=True, bound=3.0)
    warning = str(diagnose(vain, LIMITED, dead_zone=0.5))
    assert warning.startswith("chasing a bound")
    assert "algo.dead_zone=0.75" in warning
    assert "dead_zone" not in str(diagnose(vain, LIMITED))  # a trust region has none
    coming_down = series(returns=falling, restoring=True, bound=np.geomspace(50, 1, UPDATES))
    assert str(diagnose(coming_down, LIMITED)).startswith("timid")


@pytest.mark.parametrize(
    "returns", [0.88, np.linspace(1.0, 0.86, UPDATES), np.linspace(0.2, 0.9, UPDATES), -3.0]
)
def test_safe_seeds_that_kept_their_return_are_fine(returns):
    assert diagnose(series(returns=returns), LIMITED) is None


def test_a_short_run_and_one_without_episodes_are_not_judged():
    assert (
        diagnose(series(rate=0.2, restoring=True, bound=9.0, updates=2 * WINDOW - 1), LIMITED)
        is None
    )
    some = series(rate=0.2, restoring=True, bound=9.0)
    none = replace(
        some, episodes=0 * some.episodes, costs=some.costs[:0], returns=np.nan * some.returns
    )
    assert diagnose(none, LIMITED) is None


def test_series_come_from_the_rows_of_a_run():
    updates = [(7, 1, 0.0, -1.0), (8, 0, 1.0, 5.0), (7, 0, 2.0, 3.0)]
    names = ["seed", "iteration", "tier", "bound_value"]
    metrics = pl.DataFrame(updates, schema=names, orient="row")
    ended = [
        (7, 1, 6.0, 1.0, True),
        (7, 1, 5.5, 0.0, True),
        (7, 1, 9.0, 5.0, False),
        (8, 0, 9.0, 1.0, True),
    ]
    names = ["seed", "iteration", "cost", "return", "valid"]
    episodes = pl.DataFrame(ended, schema=names, orient="row")
    found = seed_series(metrics, episodes, 7)
    np.testing.assert_array_equal(found.episodes, [0, 2])
    np.testing.assert_array_equal(found.costs, [6.0, 5.5])
    np.testing.assert_array_equal(found.returns, [np.nan, 0.5])
    np.testing.assert_array_equal(found.restoring, [True, False])
    np.testing.assert_array_equal(found.bound, [3.0, -1.0])
    assert np.isnan(found.entropy).all()
    np.testing.assert_array_equal(joined(joined(None, found), found).episodes, [0, 2, 0, 2])
