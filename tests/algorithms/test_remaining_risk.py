"""The moments of the episode cost from the critics' values, against every trajectory of small
processes."""

from itertools import product

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from canary.algorithms.remaining_risk import episode_moments, remaining_risk
from canary.networks import MLP
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
    """V and V~: the discounted sums of c and of c~, counted from now on, averaged over the
    continuations."""
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
def test_moments_and_bound_of_the_whole_episode(gamma: float, time: int, state: int, spent: float):
    mdp = random_mdp(seed=time, most_cost=2)
    g = gamma**time
    paths = futures(mdp, time, state)
    totals = np.array(
        [spent + g * sum(gamma**k * cost for k, cost in enumerate(costs)) for _, costs in paths]
    )
    chance = np.array([chance for chance, _ in paths])
    assert chance.sum() == pytest.approx(1)
    truth = chance @ totals, chance @ (totals - chance @ totals) ** 2
    value, square_value = values(paths, spent, g, gamma)
    mean, variance = episode_moments(value, square_value, spent, g)
    np.testing.assert_allclose([mean, variance], truth, rtol=1e-4, atol=1e-5)
    critics = constant_critics(value, square_value)
    bound = remaining_risk(critics, jnp.zeros(1), jnp.array(spent), jnp.array(g), dead_zone=None)
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
    critic = constant_critics(chance @ x - now)
    bound = remaining_risk(
        critic, jnp.zeros(1), jnp.array(spent), jnp.array(1.0), dead_zone=dead_zone
    )
    assert float(bound) == pytest.approx(chance @ x, rel=1e-5)
    assert 0 < chance @ (totals > 1) <= bound + 1e-6


def constant_critics(*outputs: float) -> MLP:
    """Stacked critics that say the same everywhere."""
    return MLP((jnp.zeros((len(outputs), 1, 1)),), (jnp.array(outputs)[:, None],))


@given(
    st.floats(-0.5, 3),
    st.floats(-2, 9),
    st.floats(0, 3),
    st.floats(0.1, 1),
    st.sampled_from([None, 0.0, 0.4]),
)
@example(0.0, 0.0, 1.5, 1.0, 0.4)  # no shaped cost is to come once the limit is exceeded
def test_any_critics_give_a_probability(
    value: float, square: float, spent: float, g: float, dead_zone: float | None
):
    critics = constant_critics(value, square) if dead_zone is None else constant_critics(value)
    risk = float(
        remaining_risk(critics, jnp.zeros(1), jnp.array(spent), jnp.array(g), dead_zone=dead_zone)
    )
    assert 0 <= risk <= 1
    if spent > 1 + 1e-6:
        assert risk == 1  # costs are never negative: what is spent is spent


def test_contradicting_critics_do_not_pass_for_safe():
    """E[C^2] < E[C]^2 cannot be; then only the mean is believed."""
    risk = remaining_risk(
        constant_critics(0.3, 0.01), jnp.zeros(1), jnp.array(0.4), jnp.array(1.0), dead_zone=None
    )
    assert risk == pytest.approx(0.5)  # E[R] / what is left = 0.3 / 0.6
