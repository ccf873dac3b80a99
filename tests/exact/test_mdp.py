"""The finite decision process: units of cost, tables, and mistakes in them."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from canary.errors import CanaryError
from exact.tiny_mdps import line, random_mdp


@pytest.mark.parametrize(
    ("costs", "unit"),
    [
        ([1, 0, 2], Fraction(1)),
        ([0.5, 0.75], Fraction(1, 4)),
        ([0.1, 0.3], Fraction(1, 10)),
        ([4, 6], Fraction(2)),
        ([1 / 3, 0.5], Fraction(1, 6)),
        ([0, 0], Fraction(1)),
    ],
)
def test_the_unit_is_the_greatest_common_divisor(costs, unit):
    mdp = line(costs)
    assert mdp.unit == unit
    steps = mdp.levels[range(len(costs)), 0, range(1, len(costs) + 1)]
    np.testing.assert_allclose(steps * float(unit), costs)


def test_the_support_is_correctly_rounded():
    assert list(line([0.1, 0.1, 0.1]).support) == [0.0, 0.1, 0.2, 0.3]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"transition": np.ones((3, 2))}, "shape"),
        ({"transition": np.full((3, 2, 3), 0.3)}, "add up to 1"),
        ({"reward": np.zeros((3, 3))}, "reward table"),
        ({"cost": -np.ones((3, 2, 3))}, "not negative"),
        ({"cost": np.full((3, 2, 3), 2**-40)}, "coarser unit"),
        ({"initial": np.array([0.5, 0, 0])}, "initial distribution"),
        ({"horizon": 0}, "horizon"),
    ],
)
def test_mistakes_are_explained(change, words):
    with pytest.raises(CanaryError, match=words):
        replace(random_mdp(0), **change)


def test_costs_without_a_sensible_unit_are_refused():
    with pytest.raises(CanaryError, match="coarser unit"):
        line([np.pi, 1.0, np.e])
