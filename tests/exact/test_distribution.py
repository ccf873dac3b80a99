"""The finite decision process, and the exact law of its cost against listed trajectories."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from canary.environments.icy_lake import IcyLake
from canary.errors import CanaryError
from canary.exact import CostLaw, cost_law, from_environment, visits
from exact.tiny_mdps import line, random_mdp, trajectories


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
def test_mistakes_in_tables_are_explained(change, words):
    with pytest.raises(CanaryError, match=words):
        replace(random_mdp(0), **change)


def test_costs_without_a_sensible_unit_are_refused():
    with pytest.raises(CanaryError, match="coarser unit"):
        line([np.pi, 1.0, np.e])


def random_policy(mdp, seed):
    shape = (mdp.horizon, mdp.states, len(mdp.support))
    return np.random.default_rng(seed).dirichlet(np.ones(mdp.actions), size=shape)


@given(
    st.integers(0, 10_000), st.integers(1, 4), st.sampled_from([1.0, 0.25, 0.1]), st.integers(1, 3)
)
@settings(max_examples=30, deadline=None)
def test_the_law_equals_the_sum_over_trajectories(seed, horizon, unit, most_cost):
    mdp = random_mdp(seed, horizon, unit, most_cost)
    policy = random_policy(mdp, seed)
    law = cost_law(mdp, policy)
    expected = np.zeros_like(law.probabilities)
    gained = length = 0.0
    for chance, (states, actions, followers) in trajectories(mdp, policy):
        cost = mdp.cost[states, actions, followers].sum()
        expected[round(cost / float(mdp.unit))] += chance
        gained += chance * mdp.reward[states, actions, followers].sum()
        length += chance * len(states)
    np.testing.assert_allclose(law.probabilities, expected, atol=1e-13)
    assert law.expected_return == pytest.approx(gained)
    assert law.expected_length == pytest.approx(length)
    assert visits(mdp, policy).sum() == pytest.approx(length)


def test_a_random_policy_on_the_lake_has_the_numbers_of_its_page():
    """docs/environments/icy_lake.md."""
    law = cost_law(from_environment(IcyLake()), np.full((16, 4), 0.25))
    found = law.expected_return, law.expected_length, law.mean, law.variance**0.5
    assert found == pytest.approx((0.838, 51.23, 11.449, 8.123), rel=1e-3)
    assert (law.violation(5.5), law.violation(15)) == pytest.approx((0.704, 0.296), abs=5e-4)


def test_risk_measures_of_a_known_law():
    law = CostLaw(np.arange(5.0), np.array([0.5, 0.3, 0.1, 0.06, 0.04]), 0.0, 1.0)
    assert law.violation(2.0) == pytest.approx(0.10)  # strictly more
    assert law.violation(1.9) == pytest.approx(0.20)
    for epsilon, value in ((0.03, 4), (0.04, 3), (0.1, 2), (0.2, 1), (0.6, 0)):
        assert law.value_at_risk(epsilon) == value
    assert law.conditional_value_at_risk(0.1) == pytest.approx((0.04 * 4 + 0.06 * 3) / 0.1)
    assert law.conditional_value_at_risk(0.05) == pytest.approx((0.04 * 4 + 0.01 * 3) / 0.05)
    assert law.mean == pytest.approx(0.84)
    assert law.variance == pytest.approx(0.3 + 0.4 + 0.54 + 0.64 - 0.84**2)
    assert law.cantelli(3.0, 0.1) == pytest.approx(9 * law.variance - (3 - 0.84) ** 2)


@settings(deadline=None)
@given(st.lists(st.floats(0.01, 1), min_size=2, max_size=8), st.floats(0.01, 0.99))
def test_risk_measures_are_ordered(weights, epsilon):
    probabilities = np.array(weights) / sum(weights)
    law = CostLaw(np.arange(len(weights), dtype=float), probabilities, 0.0, 1.0)
    var, cvar = law.value_at_risk(epsilon), law.conditional_value_at_risk(epsilon)
    assert law.violation(var) <= epsilon + 1e-9
    assert var == 0 or law.violation(var - 1) > epsilon
    assert var <= cvar + 1e-9
    assert cvar <= law.mean + np.sqrt((1 / epsilon - 1) * law.variance) + 1e-9


@pytest.mark.parametrize(
    ("policy", "words"),
    [
        (np.ones((3, 4)) / 4, "shape"),
        (np.ones((3, 2)), "add up to 1"),
        (np.array([[1.5, -0.5]] * 3), "non-negative"),
        (np.array([0, 1, 2]), "0 to 1"),
    ],
)
def test_mistakes_in_policies_are_explained(policy, words):
    with pytest.raises(CanaryError, match=words):
        cost_law(random_mdp(0), policy)
