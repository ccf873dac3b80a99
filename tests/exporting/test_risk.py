"""The risk of the rest of an episode from exact critics, against every trajectory."""

from itertools import product

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from canary.exporting.numpy_policy import cantelli_risk, shaped_risk
from canary.numerics.costs import augmented_cost
from exact.tiny_mdps import random_mdp

LIMIT = 1.3


def futures(mdp, time: int, state: int) -> list[tuple[float, list[float]]]:
    """(probability, costs still to come) of every continuation under the uniform policy."""
    if mdp.terminal[state] or time == mdp.horizon:
        return [(1.0, [])]
    paths = []
    for action, follower in product(range(mdp.actions), range(mdp.states)):
        chance = mdp.transition[state, action, follower] / mdp.actions
        cost = mdp.cost[state, action, follower] / LIMIT
        paths += [
            (chance * later, [cost, *costs]) for later, costs in futures(mdp, time + 1, follower)
        ]
    return paths


def values(
    paths: list[tuple[float, list[float]]], spent: float, g: float, gamma: float
) -> tuple[float, float]:
    """V and V~: the mean discounted sums of c and of c~, counted from now on."""
    value = square_value = 0.0
    for chance, costs in paths:
        y, discount, weight = spent, g, 1.0
        for cost in costs:
            value += chance * weight * cost
            square_value += (
                chance * weight * float(augmented_cost(*np.array([cost, y, discount])[:, None])[0])
            )
            y, discount, weight = y + discount * cost, discount * gamma, weight * gamma
    return value, square_value


@pytest.mark.parametrize("gamma", [1.0, 0.8])
@pytest.mark.parametrize(("time", "state", "spent"), [(0, 0, 0.0), (1, 1, 0.5)])
def test_cantellis_bound_of_the_whole_episode(gamma: float, time: int, state: int, spent: float):
    g = gamma**time
    paths = futures(random_mdp(seed=time, most_cost=2), time, state)
    totals = np.array(
        [spent + g * sum(gamma**k * cost for k, cost in enumerate(costs)) for _, costs in paths]
    )
    chance = np.array([chance for chance, _ in paths])
    assert chance.sum() == pytest.approx(1)
    mean = chance @ totals
    variance = chance @ (totals - mean) ** 2
    bound = cantelli_risk(*map(np.array, (*values(paths, spent, g, gamma), spent, g)))
    assert bound == pytest.approx(variance / (variance + (1 - mean) ** 2) if mean < 1 else 1.0)
    violation = chance @ (totals > 1)
    assert 0 < violation < 1
    assert violation <= bound + 1e-6 <= 1 + 1e-5


@pytest.mark.parametrize("dead_zone", [0.0, 0.4])
@pytest.mark.parametrize(("time", "state", "spent"), [(0, 0, 0.0), (1, 1, 0.5)])
def test_markovs_bound_is_the_mean_of_the_shaped_cost(time, state, spent, dead_zone):
    """From the critic V_X of the shaped cost to come: E[X | x] = phi(y) + V_X(x)."""
    paths = futures(random_mdp(seed=time, most_cost=2), time, state)
    chance = np.array([chance for chance, _ in paths])
    totals = np.array([spent + sum(costs) for _, costs in paths])
    x, now = (np.clip((cost - dead_zone) / (1 - dead_zone), 0, 1) for cost in (totals, spent))
    bound = shaped_risk(chance @ x - now, spent, dead_zone)
    assert bound == pytest.approx(chance @ x)
    assert 0 < chance @ (totals > 1) <= bound + 1e-6


@given(st.floats(0, 3), st.floats(-2, 9), st.floats(0, 3), st.floats(0.1, 1), st.floats(0, 0.9))
@example(0.0, 0.0, 1.5, 1.0, 0.4)  # no shaped cost is to come once the limit is exceeded
def test_any_critics_give_a_probability(value, square, spent, g, dead_zone):
    numbers = map(np.array, (value, square, spent, g))
    for risk in (cantelli_risk(*numbers), shaped_risk(value, spent, dead_zone)):
        assert 0 <= risk <= 1
        if spent > 1 + 1e-6:
            assert risk == 1  # costs are never negative: what is spent is spent


def test_critics_that_contradict_each_other_do_not_look_safe():
    """E[C^2] < E[C]^2 is impossible; then only the mean counts."""
    risk = cantelli_risk(*map(np.array, (0.3, 0.01, 0.4, 1.0)))
    assert risk == pytest.approx(0.5)  # E[R] / what is left = 0.3 / 0.6
