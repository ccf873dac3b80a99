"""The Gaussian tail at known moments, against normal tables and the paper's remark."""

import math

import pytest

from canary.studies.paper.gaussian_tail import gaussian_tail


def test_the_remark_of_the_paper():
    """z = 6.1 predicts 5e-10, z = 5.0 predicts 3e-7; the rates are 0.002 and 0.011."""
    eco_ant, point_goal = gaussian_tail(0.0, 1.0, 6.1, 0.002), gaussian_tail(0.0, 1.0, 5.0, 0.011)
    assert eco_ant.predicted == pytest.approx(math.log10(5.303e-10), abs=1e-3)
    assert point_goal.predicted == pytest.approx(math.log10(2.867e-7), abs=1e-3)
    assert 6 < eco_ant.short_by < 7
    assert 4 < point_goal.short_by < 5


def test_far_tails_do_not_vanish_and_degenerate_costs_have_an_answer():
    assert gaussian_tail(0.0, 1.0, 60.0, 1e-3).predicted == pytest.approx(-783.9, abs=0.2)
    assert gaussian_tail(1.0, 0.0, 2.0, 0.0).deviations == math.inf
    assert gaussian_tail(3.0, 0.0, 2.0, 1.0).predicted == 0
    assert gaussian_tail(0.0, 1.0, 2.0, 0.0).short_by is None
