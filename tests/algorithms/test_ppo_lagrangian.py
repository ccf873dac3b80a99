"""PPO-Lagrangian: the gradient of its price is that of the constraint, exactly; and the controller
of the price."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from canary.algorithms.base import EstimationConfig, Task
from canary.algorithms.ppo_lagrangian import (
    PPOLagrangianConfig,
    Price,
    constrained,
    make_ppo_lagrangian,
    next_price,
    priced_objective,
)
from canary.environments.protocol import Discrete
from canary.numerics.moments import Span, empty_window, record_episodes
from problems.breach_truth import Law, difference_quotients
from problems.probe_mdps import EPSILON, LIMIT, ROOT, TABLE, TablePolicy, Truth, population
from problems.terms import make_terms

MULTIPLIER, WORTH = 2.5, 4.0
KINDS = ("chance", "mean", "cvar")


@pytest.fixture(scope="module", params=[1.0, 0.9])
def case(request):
    """All episodes of a small decision process; what critics say must not matter at a decay of
    1."""
    with jax.enable_x64(True):
        rollout, _, _ = population(request.param)
        window = record_episodes(empty_window(rollout.done.size), rollout.episodes)
        zero = jnp.zeros((2, *rollout.cost.shape))
    return SimpleNamespace(gamma=request.param, rollout=rollout, window=window, values=(zero, zero))


def share_of(kind):
    return 1.0 if kind == "mean" else EPSILON


def price(multiplier=MULTIPLIER, before=jnp.nan):
    return Price(*map(jnp.asarray, (multiplier, multiplier, before, WORTH)))


def objective(case, kind):
    """The objective of a batch whose reward advantage is zero: minus the priced constraint is all
    that is left."""
    estimation = EstimationConfig(cost_discount=case.gamma, gae_lambda=1.0, window=1)
    nothing = jnp.zeros_like(case.rollout.cost)
    return priced_objective(PPOLagrangianConfig(estimation=estimation), kind)(
        case.rollout, (nothing, nothing + 7), *case.values, case.window,
        make_terms(LIMIT, share_of(kind)), price(),
    )  # fmt: skip


def level(kind, table, gamma, eta):
    """K of a policy table by enumeration; eta held fixed."""
    law = Law(table, gamma)
    if kind == "chance":
        return law.breach() / EPSILON
    if kind == "mean":
        return Truth(table, gamma).remaining(ROOT)[0]
    return eta + sum(p * max(cost - eta, 0) for cost, p in law.to_come(ROOT).items()) / EPSILON


@pytest.mark.parametrize("kind", KINDS)
def test_policy_gradient_is_that_of_the_priced_constraint(case, kind):
    with jax.enable_x64(True):
        found = objective(case, kind)
        rows, action = case.rollout.inputs[:, 0], case.rollout.action[:, 0]

        def surrogate(table):
            return (TablePolicy(table)(rows).log_prob(action) * found.advantage[:, 0]).sum()

        gradient = np.asarray(jax.grad(surrogate)(jnp.asarray(TABLE)))
        gradient = gradient / np.asarray(case.rollout.episodes.ended).sum()
    eta = float(found.metrics["eta"]) / LIMIT
    truth = (
        -MULTIPLIER
        * WORTH
        * difference_quotients(lambda table: level(kind, table, case.gamma, eta))
    )
    assert np.abs(truth).max() > 0.1
    np.testing.assert_allclose(gradient, truth, rtol=1e-5, atol=1e-7)


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
        found, _ = constrained(case.window, Span(1), make_terms(2 * LIMIT, share_of(kind)), kind)
    assert float(found) == pytest.approx(expected[kind])


def test_tail_level_has_a_slope_where_the_tail_mean_is_flat():
    """Half of the episodes cost twice the limit and epsilon is 0.2: CVaR is 2 whatever happens to
    some of them."""
    costs = jnp.array([2.0, 2.0, 0.0, 0.0])
    window = empty_window(4)
    window = type(window)(costs, costs, costs, jnp.array(4), jnp.array(4))
    found, eta = constrained(window, Span(1), make_terms(1.0, 0.2), "cvar")
    assert (float(found), float(eta)) == (pytest.approx(1 + 0.5 / 0.2), 1.0)


def test_tails_are_judged_by_enough_episodes():
    """One new episode says nothing of a tail of a quarter: the last four do."""
    window = empty_window(8)
    costs = jnp.array([2.0, 0.0, 0.0, 0.0, 9.0, 9.0, 9.0, 9.0])
    window = type(window)(costs, costs, costs, jnp.array(4), jnp.array(1))
    assert float(constrained(window, Span(1), make_terms(1.0, 0.25), "chance")[0]) == 1.0
    assert float(constrained(window, Span(1), make_terms(1.0, 1.0), "mean")[0]) == 0.0


# --- the controller ---

GAINS = {"integral_gain": 0.5, "proportional_gain": 10.0, "derivative_gain": 100.0}


def after(kind, level, *, multiplier=4.0, before=np.nan, ready=True, worth=1.0):
    config = PPOLagrangianConfig(multiplier=kind, **GAINS)
    found = next_price(price(multiplier, before), *map(jnp.asarray, (level, worth, ready)), config)
    return float(found.integral), float(found.multiplier), float(found.worth)


def test_dual_ascent_follows_the_error_and_stays_above_zero():
    assert after("integral", 1.5) == (4.25, 4.25, WORTH)
    assert after("integral", 0.0, multiplier=0.25) == (0.0, 0.0, WORTH)


def test_pid_adds_the_error_and_its_rise_but_not_its_fall():
    assert after("pid", 1.5) == (4.25, 9.25, WORTH)
    assert after("pid", 1.5, before=1.25) == (4.25, 34.25, WORTH)
    assert after("pid", 1.5, before=2.0) == (4.25, 9.25, WORTH)


def test_an_error_of_any_size_moves_the_price_by_a_bounded_amount():
    assert after("integral", 50.0) == after("integral", 2.0) == (4.5, 4.5, WORTH)


def test_price_waits_for_episodes_and_remembers_the_largest_return():
    assert after("integral", 3.0, ready=False) == (4.0, 4.0, WORTH)
    assert after("integral", np.nan) == (4.0, 4.0, WORTH)
    assert after("integral", 3.0, worth=9.0)[2] == 9.0


@pytest.mark.parametrize(("kind", "size"), [("chance", 5), ("cvar", 5), ("mean", 3)])
def test_spent_cost_is_seen_where_the_constraint_needs_it(kind, size):
    task = Task(input_size=5, action_space=Discrete(2), constraint=kind)
    config = PPOLagrangianConfig(estimation=EstimationConfig(hidden=(4,)))
    learner = jax.eval_shape(make_ppo_lagrangian(config, task).init, jax.random.key(0))
    assert learner.policy.network.weights[0].shape == (size, 4)
