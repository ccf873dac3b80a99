"""Exact advantages of a function of the cost, and how near Canary's product comes to them."""

import numpy as np
import pytest

from canary.environments.icy_lake import IcyLake
from canary.exact import best_under_var, from_environment, markov_policy, visits
from canary.exact.advantages import cost_function_advantages, local_cost_advantages
from canary.numerics.shaped_cost import shaped

LIMIT, EPSILON, DEAD_ZONE = 5.5, 0.02, 0.5


@pytest.fixture(scope="module")
def lake():
    """The lake, a policy that is optimal four times in five, and where it goes."""
    mdp = from_environment(IcyLake())
    best = markov_policy(mdp, best_under_var(mdp, LIMIT, EPSILON).policy)
    policy = 0.8 * best + 0.2 / mdp.actions
    return mdp, policy, visits(mdp, policy)


def test_the_cost_itself_has_the_undiscounted_advantage(lake):
    mdp, policy, measure = lake
    advantages, values = cost_function_advantages(mdp, policy, lambda cost: cost)
    seen = measure > 1e-9
    local = local_cost_advantages(mdp, policy, 1.0)
    np.testing.assert_allclose(advantages[seen], local[seen], atol=1e-6)
    np.testing.assert_allclose((advantages * policy).sum(-1)[seen.any(-1)], 0, atol=1e-9)
    start = values[0, :, 0] @ mdp.initial
    assert start == pytest.approx((measure * (mdp.transition * mdp.cost).sum(2)[:, None]).sum())


def test_the_price_of_an_episode_times_the_effect_correlates_with_the_truth(lake):
    """The numbers of docs/lab-notebook.md: E[X | x] has 0.67, E[psi'(C) | x] has 0.82."""
    mdp, policy, measure = lake

    def x(cost):
        return shaped(cost / LIMIT, DEAD_ZONE)

    def slope(cost):
        return x(cost) * (cost < LIMIT)

    truth, _ = cost_function_advantages(mdp, policy, lambda cost: x(cost) ** 2)
    effect = local_cost_advantages(mdp, policy, 0.99)

    def correlation(function):
        product = cost_function_advantages(mdp, policy, function)[1][..., None] * effect
        squares = [(measure * each**2).sum() for each in (truth, product)]
        return (measure * truth * product).sum() / np.sqrt(np.prod(squares))

    assert correlation(x) == pytest.approx(0.67, abs=0.01)
    assert correlation(slope) == pytest.approx(0.82, abs=0.01)
