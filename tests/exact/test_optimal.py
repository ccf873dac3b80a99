"""Exact optima against complete enumeration, an independent linear program, and known values."""

from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog
from scipy.sparse import coo_array

from canary.environments.icy_lake import IcyLake
from canary.exact import (
    CONSTRAINTS,
    Infeasible,
    best_response,
    best_under_cvar,
    best_under_var,
    cost_law,
    from_environment,
)
from exact.tiny_mdps import SETTINGS, enumerated, line, random_mdp

LAKE = from_environment(IcyLake())
LIMIT = 5.5


@cache
def lake_optimum(constraint, epsilon):
    return CONSTRAINTS[constraint](LAKE, LIMIT, epsilon)


def assert_satisfied(constraint, law, limit, epsilon, slack=1e-8):
    if constraint == "var":
        assert law.violation(limit) <= epsilon + slack
    elif constraint == "cvar":
        assert law.conditional_value_at_risk(epsilon) <= limit + slack
    else:
        assert law.cantelli(limit, epsilon) <= slack
        assert law.mean <= limit + slack


# Complete enumeration: every deterministic policy of a tiny process, mixed by a linear program.


def best_mixture(laws, penalty, bound):
    returns, charges = laws[:, -1], laws[:, :-1] @ penalty
    ones = np.ones((1, len(laws)))
    solution = linprog(-returns, A_ub=charges[None], b_ub=[bound], A_eq=ones, b_eq=[1])
    return -solution.fun if solution.status == 0 else -np.inf


def assert_optimum(solve, setting, expected):
    if np.isinf(expected):
        with pytest.raises(Infeasible):
            solve(*setting)
    else:
        assert solve(*setting).value == pytest.approx(expected, abs=1e-8)


@pytest.mark.parametrize(("seed", "limit", "epsilon"), SETTINGS)
def test_var_and_cvar_equal_enumeration(seed, limit, epsilon):
    """For CVaR eta is not confined to the cost levels: a fine grid finds nothing better."""
    mdp, laws = enumerated(seed)
    expected = best_mixture(laws, (mdp.support > limit).astype(float), epsilon)
    assert_optimum(best_under_var, (mdp, limit, epsilon), expected)
    expected = max(
        best_mixture(laws, np.maximum(mdp.support - eta, 0), epsilon * (limit - eta))
        for eta in np.union1d(np.linspace(-0.5, limit, 12), mdp.support[mdp.support <= limit])
    )
    assert_optimum(best_under_cvar, (mdp, limit, epsilon), expected)


def test_var_equals_an_occupation_measure_program():
    """Another method: a linear program over visits (time, state, min(spent, 3), action)."""
    horizon, cap, epsilon = 14, 3, 0.05
    mdp = from_environment(IcyLake(horizon=horizon))
    index = np.arange(horizon * 16 * (cap + 1) * 4).reshape(horizon, 16, cap + 1, 4)
    ended = horizon * 16 * (cap + 1)  # flow into these rows is not balanced by anything
    rows, columns, values = [], [], []
    breach, reward = np.zeros(index.size), np.zeros(index.size)
    for (time, state, spent, action), variable in np.ndenumerate(index):
        if mdp.terminal[state]:
            continue
        rows.append((time * 16 + state) * (cap + 1) + spent)
        columns.append(variable)
        values.append(1.0)
        for follower in np.flatnonzero(mdp.transition[state, action]):
            chance = mdp.transition[state, action, follower]
            after = min(spent + int(mdp.cost[state, action, follower]), cap)
            reward[variable] += chance * mdp.reward[state, action, follower]
            if mdp.terminal[follower] or time + 1 == horizon:
                breach[variable] += chance * (after == cap)
            else:
                rows.append(((time + 1) * 16 + follower) * (cap + 1) + after)
                columns.append(variable)
                values.append(-chance)
    balance = coo_array((values, (rows, columns)), shape=(ended, index.size)).tocsr()
    source = np.zeros(ended)
    source[0] = 1.0
    solution = linprog(
        -reward, A_ub=breach[None], b_ub=[epsilon], A_eq=balance, b_eq=source, bounds=(0, None)
    )
    assert solution.status == 0
    assert best_under_var(mdp, cap - 0.5, epsilon).value == pytest.approx(-solution.fun, abs=1e-8)


# IcyLake, limit 5.5, horizon 100.


@pytest.mark.parametrize(
    ("constraint", "epsilon", "value"),
    [
        ("var", 0.02, 0.98774),
        ("cvar", 0.02, 0.97304),
        ("cantelli", 0.02, 0.90821),
        ("var", 0.1, 0.99965),
        ("cvar", 0.1, 0.99470),
        ("cantelli", 0.1, 0.98537),
    ],
)
def test_known_values_of_the_lake(constraint, epsilon, value):
    optimum = lake_optimum(constraint, epsilon)
    assert optimum.value == pytest.approx(value, abs=1e-5)
    assert -1e-12 <= optimum.upper_bound - optimum.value <= 1.001e-6
    assert optimum.law.expected_return == pytest.approx(optimum.value, abs=1e-12)
    assert cost_law(LAKE, optimum.policy).expected_return == pytest.approx(optimum.value, abs=1e-9)
    assert_satisfied(constraint, optimum.law, LIMIT, epsilon)


# Properties on random processes, and mistakes.


@given(st.integers(0, 10_000), st.floats(0.2, 4), st.floats(0.02, 0.9))
@settings(max_examples=25, deadline=None)
def test_optima_are_safe_nested_and_bounded(seed, limit, epsilon):
    mdp = random_mdp(seed, horizon=5, unit=0.5, most_cost=2)
    previous = np.inf
    for name, solve in CONSTRAINTS.items():
        try:
            optimum = solve(mdp, limit, epsilon)
        except Infeasible:
            previous = -np.inf
            continue
        assert_satisfied(name, optimum.law, limit, epsilon)
        assert 0 <= optimum.upper_bound - optimum.value <= 1.001e-6 * max(1, optimum.value)
        assert optimum.value <= previous + 1e-9
        previous = optimum.value


@given(st.integers(0, 10_000), st.floats(0, 3))
@settings(max_examples=25, deadline=None)
def test_the_best_response_is_what_it_claims(seed, scale):
    mdp = random_mdp(seed, horizon=4)
    rng = np.random.default_rng(seed)
    penalty = scale * np.cumsum(rng.uniform(size=len(mdp.support)))
    value, actions = best_response(mdp, penalty)
    law = cost_law(mdp, actions)
    assert law.expected_return - law.expectation(penalty) == pytest.approx(value)
    for _ in range(20):
        other = cost_law(mdp, rng.integers(0, 2, actions.shape))
        assert other.expected_return - other.expectation(penalty) <= value + 1e-12


@pytest.mark.parametrize("constraint", CONSTRAINTS)
def test_an_impossible_constraint_is_refused_and_a_limit_of_exactly_the_cost_allowed(constraint):
    with pytest.raises(Infeasible, match="raise the limit or epsilon"):
        CONSTRAINTS[constraint](line([2, 2, 2]), 5.5, 0.1)
    optimum = CONSTRAINTS[constraint](line([0.1, 0.1, 0.1]), 0.3, 0.1)
    assert optimum.law.mean == pytest.approx(0.3)
