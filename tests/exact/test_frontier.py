"""The frontier shares work between its points; the numbers must not notice."""

import numpy as np
import pytest

from canary.environments.icy_lake import IcyLake
from canary.errors import CanaryError
from canary.exact import CONSTRAINTS, from_environment, frontier
from exact.tiny_mdps import line


def test_points_equal_separate_solutions_and_come_in_order():
    mdp = from_environment(IcyLake(horizon=30))
    epsilons = (0.02, 0.1, 0.3)
    points = frontier(mdp, 3.5, epsilons)
    assert [(point.constraint, point.epsilon) for point in points] == [
        (name, epsilon) for name in ("var", "cvar", "cantelli") for epsilon in epsilons
    ]
    for point in points:
        alone = CONSTRAINTS[point.constraint](mdp, 3.5, point.epsilon)
        assert point.optimum.value == pytest.approx(alone.value, abs=1.1e-6)
        assert point.optimum.law.expected_return == pytest.approx(point.optimum.value)
    values = np.array([point.optimum.value for point in points]).reshape(3, 3)
    assert (np.diff(values, axis=1) >= 0).all()


def test_impossible_points_are_marked():
    points = frontier(line([2, 2]), 3.0, [0.1], ["var", "cantelli"])
    assert [point.optimum for point in points] == [None, None]


def test_unknown_constraint():
    with pytest.raises(CanaryError, match="no constraint 'mean'"):
        frontier(line([1]), 1.0, [0.1], ["mean"])
