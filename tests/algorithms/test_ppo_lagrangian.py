"""PPO-Lagrangian: the level of its constraint, and the direction of its gradient, exactly."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from canary.algorithms.base import EstimationConfig
from canary.algorithms.priced import Price, constrained, expected_sum, priced_objective
from canary.numerics.costs import empty_window, record_episodes
from problems.breach_truth import Law
from problems.probe_mdps import (
    EPSILON,
    LIMIT,
    ROOT,
    TABLE,
    Truth,
    batch_of,
    difference_quotients,
    policy_gradient,
    population,
)
from problems.terms import make_terms

KINDS = ("chance", "mean", "cvar")


@pytest.fixture(scope="module", params=[0.9])
def case(request):
    """All episodes of a small decision process; at a decay of 1 critics must not matter."""
    with jax.enable_x64(True):
        rollout, _, _ = population(request.param)
        window = record_episodes(empty_window(rollout.done.size), rollout.episodes)
    return SimpleNamespace(gamma=request.param, rollout=rollout, window=window)


def share_of(kind):
    return 1.0 if kind == "mean" else EPSILON


def objective(case, kind):
    """The objective of a batch whose reward advantage is zero: minus the priced constraint."""
    estimation = EstimationConfig(cost_discount=case.gamma, gae_lambda=1.0, window=1)
    nothing = jnp.zeros_like(case.rollout.cost)
    zero = jnp.stack([nothing, nothing])
    batch = batch_of(case.rollout, zero, zero, reward=(nothing, nothing + 7))
    terms = make_terms(LIMIT, share_of(kind))
    penalties = [expected_sum(estimation, kind)]
    return priced_objective(penalties, 1, estimation.window)(batch, terms, Price(jnp.zeros(())))


def level(kind, table, gamma, eta):
    """K of a policy table by enumeration; eta held fixed."""
    law = Law(table, gamma)
    if kind == "chance":
        return law.breach() / EPSILON
    if kind == "mean":
        return Truth(table, gamma).remaining(ROOT)[0]
    return eta + sum(p * max(cost - eta, 0) for cost, p in law.to_come(ROOT).items()) / EPSILON


@pytest.mark.parametrize("kind", KINDS)
def test_policy_gradient_points_down_the_level_of_the_constraint(case, kind):
    """Exactly: it is minus the gradient of K, times a positive number."""
    with jax.enable_x64(True):
        found = objective(case, kind)
        gradient = policy_gradient(case.rollout, found.advantage)
    eta = float(found.metrics["eta"]) / LIMIT
    truth = -difference_quotients(lambda table: level(kind, table, case.gamma, eta))
    assert np.abs(truth).max() > 0.02
    factor = (gradient * truth).sum() / (truth**2).sum()
    assert factor > 0
    np.testing.assert_allclose(gradient, factor * truth, rtol=1e-5, atol=1e-7 * factor)
    assert float(found.metrics["constraint_level"]) == pytest.approx(
        level(kind, TABLE, case.gamma, eta)
    )


@pytest.mark.parametrize("kind", KINDS)
def test_level_is_that_of_the_constraint(case, kind):
    """At twice the limit, where VaR is below it and the level of CVaR is CVaR itself."""
    law = Law(TABLE, case.gamma)
    chance = sum(p for cost, p in law.to_come(ROOT).items() if cost > 2) / EPSILON
    expected = {
        "chance": chance,
        "mean": Truth(TABLE, case.gamma).remaining(ROOT)[0] / 2,
        "cvar": law.cvar() / 2,
    }
    with jax.enable_x64(True):
        found, _ = constrained(case.window, 1, make_terms(2 * LIMIT, share_of(kind)), kind)
    assert float(found) == pytest.approx(expected[kind])


def test_tail_level_has_a_slope_where_the_tail_mean_is_flat():
    """Half of the episodes cost twice the limit, epsilon is 0.2: CVaR is 2 and flat."""
    costs = jnp.array([2.0, 2.0, 0.0, 0.0])
    window = empty_window(4)
    window = type(window)(costs, costs, costs, jnp.array(4), jnp.array(4))
    found, eta = constrained(window, 1, make_terms(1.0, 0.2), "cvar")
    assert (float(found), float(eta)) == (pytest.approx(1 + 0.5 / 0.2), 1.0)
