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


FALLING = np.linspace(1.0, 0.28, UPDATES)
COMING_DOWN = np.geomspace(50, 1, UPDATES)
NOISE = np.random.default_rng(1).normal(size=UPDATES)
VAIN = {"rate": 0.2, "restoring": True, "bound": 9.0}


@pytest.mark.parametrize(
    ("seed", "words"),
    [
        (series(**VAIN), ("stuck", "rate 0.2", "its lowest value was", "--from")),
        (
            series(**VAIN | {"rate": np.where(np.arange(UPDATES) < WINDOW, 0.0, 0.2)}),
            ("stuck", "in updates 1 to 25 it stayed within the limit"),
        ),
        (series(returns=FALLING), ("timid", "from 0.913 to 0.367")),
        (series(returns=FALLING, restoring=True, bound=COMING_DOWN), ("timid",)),
        (series(returns=FALLING, restoring=True, bound=3.0), ("timid", "algo.dead_zone=0.75")),
    ],
)
def test_a_seed_that_went_wrong_gets_a_warning_with_advice(seed, words):
    warning = str(diagnose(seed, LIMITED, dead_zone=0.5))
    assert warning.startswith(words[0])
    assert all(word in warning for word in words)
    assert "dead_zone" not in str(diagnose(seed, LIMITED))  # a trust region has none


@pytest.mark.parametrize(
    "seed",
    [
        series(**VAIN | {"bound": COMING_DOWN}),  # on its way
        # So is this one: its bound is flat while far above the limit, but fewer episodes violate it
        series(**VAIN | {"rate": np.where(np.arange(UPDATES) < UPDATES - WINDOW, 0.4, 0.3)}),
        series(returns=0.88),
        series(returns=np.linspace(1.0, 0.86, UPDATES)),
        series(returns=np.linspace(0.2, 0.9, UPDATES)),
        series(returns=-3.0),
        series(returns=1 + 3 * NOISE),  # windows differ by chance alone
        series(**VAIN, updates=2 * WINDOW - 1),  # too short to be judged
        replace(series(**VAIN), episodes=np.zeros(UPDATES, int), costs=np.zeros(0)),
    ],
)
def test_other_seeds_get_no_warning(seed):
    assert diagnose(seed, LIMITED) is None


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
