"""Exact advantages of a function of the cost, and how near Canary's product comes to them.

For psi(C), with x = (time, state, spent), A^psi(x, a) = E[psi(C) | x, a] - E[psi(C) | x]. Canary
estimates it as the price E[psi'(C) | x] times the advantage of the discounted cost A^c(x, a): the
first-order term in what one action does to the cost.
"""

import numpy as np
import pytest

from canary.environments.icy_lake import IcyLake
from canary.exact import best_under_var, from_environment, markov_policy, visits
from canary.exact.distribution import tabulate
from canary.numerics.costs import shaped

LIMIT, EPSILON, DEAD_ZONE = 5.5, 0.02, 0.5


def backward(mdp, policy, last, paid, discount):
    """Advantages and values of sum_t discount^t paid(c_t) + last(C) on every (time, state, spent)."""
    table, levels = tabulate(mdp, policy), len(last)
    value = np.broadcast_to(last, (mdp.states, levels))
    advantages = np.zeros((mdp.horizon, mdp.states, levels, mdp.actions))
    values = np.zeros(advantages.shape[:3])
    for time in reversed(range(mdp.horizon)):
        after = [np.minimum(np.arange(levels) + step, levels - 1) for step in mdp.steps_of_cost]
        ahead = [
            paid * step + discount * value[:, level]
            for step, level in zip(mdp.steps_of_cost, after, strict=True)
        ]
        quality = mdp.kernel @ np.concatenate(ahead)
        quality = np.moveaxis(quality.reshape(mdp.states, mdp.actions, -1), 1, 2)
        mean = (quality * table[time]).sum(-1)
        running = ~mdp.terminal[:, None]
        values[time] = value = np.where(running, mean, last)
        advantages[time] = np.where(running[..., None], quality - mean[..., None], 0)
    return advantages, values


def cost_function_advantages(mdp, policy, psi):
    return backward(mdp, policy, psi(mdp.support), 0.0, 1.0)


def local_cost_advantages(mdp, policy, discount):
    return backward(mdp, policy, np.zeros(len(mdp.support)), float(mdp.unit), discount)[0]


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
