"""The finite decision process: units of cost, tables, and mistakes in them."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from canary.environments.icy_lake import IcyLake
from canary.errors import CanaryError
from canary.exact import from_environment
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
    assert mdp.cost_unit == unit
    steps = mdp.levels[range(len(costs)), 0, range(1, len(costs) + 1)]
    np.testing.assert_allclose(steps * float(unit), costs)


@given(st.lists(st.integers(0, 50), min_size=1, max_size=4), st.integers(1, 60), st.integers(1, 60))
def test_every_cost_is_a_whole_number_of_units(counts, numerator, denominator):
    mdp = line([count * numerator / denominator for count in counts])
    steps = mdp.levels[range(len(counts)), 0, range(1, len(counts) + 1)]
    np.testing.assert_allclose(
        steps * float(mdp.cost_unit), [count * numerator / denominator for count in counts]
    )


def test_the_support_is_correctly_rounded():
    assert list(line([0.1, 0.1, 0.1]).support) == [0.0, 0.1, 0.2, 0.3]
    assert len(line([1, 1], cost_unit=0.5).support) == 5


def test_icy_lake_tables():
    lake = IcyLake(slip=0.2)
    mdp = from_environment(lake)
    np.testing.assert_allclose(mdp.transition.sum(axis=2), 1)
    assert mdp.transition[9, 2, 10] == pytest.approx(0.6)
    assert mdp.cost[8, 1, 12] == 1
    assert mdp.cost[12, 3, 8] == 0
    assert mdp.reward[14, 2, 15] == 1
    assert (mdp.horizon, mdp.cost_unit, len(mdp.support)) == (100, 1, 101)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"transition": np.ones((3, 2))}, "shape"),
        ({"transition": np.full((3, 2, 3), 0.3)}, "add up to 1"),
        ({"reward": np.zeros((3, 3))}, "reward table"),
        ({"cost": -np.ones((3, 2, 3))}, "not negative"),
        ({"cost": np.full((3, 2, 3), 1.5), "cost_unit": 1}, "not whole multiples"),
        ({"cost": np.full((3, 2, 3), 2**-40)}, "not below 1e-6"),
        ({"initial": np.array([0.5, 0, 0])}, "initial distribution"),
        ({"horizon": 0}, "horizon"),
    ],
)
def test_mistakes_are_explained(change, words):
    with pytest.raises(CanaryError, match=words):
        replace(random_mdp(0), **{"cost_unit": None, **change})


def test_costs_without_a_sensible_unit_are_refused():
    with pytest.raises(CanaryError, match="coarser unit"):
        line([np.pi, 1.0, np.e])
