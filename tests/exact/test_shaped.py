"""Cantelli's bound on the shaped cost: what it promises, and that more dead zone allows more."""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from canary.environments.icy_lake import IcyLake
from canary.errors import CanaryError
from canary.exact import (
    CostLaw,
    Infeasible,
    best_under_cantelli,
    best_under_cvar,
    best_under_var,
    from_environment,
)
from canary.studies.catalogue import HARD_LAKE
from exact.tiny_mdps import SETTINGS, enumerated, line, random_mdp

LAKE = from_environment(IcyLake())


def best_or_none(solve, *arguments, **options):
    try:
        return solve(*arguments, **options)
    except Infeasible:
        return None


def law_of(probabilities, support=None):
    support = np.arange(len(probabilities), dtype=float) if support is None else support
    return CostLaw(np.asarray(support, float), np.asarray(probabilities, float), 0.0, 1.0)


# The bound of a given law.


def test_the_bound_of_a_known_law():
    law = law_of([0.6, 0.2, 0.1, 0.06, 0.04])  # limit 3, d = 1/3: phi = 0, 0, 1/2, 1, 1
    mean, variance = 0.05 + 0.1, 0.025 + 0.1 - 0.15**2
    assert law.shaped_moments(3.0, 1 / 3) == pytest.approx((mean, variance))
    assert law.cantelli(3.0, 0.1, 1 / 3) == pytest.approx(9 * variance - (1 - mean) ** 2)
    assert law.guaranteed_violation(3.0, 1 / 3) == pytest.approx(
        variance / (variance + (1 - mean) ** 2)
    )


@pytest.mark.parametrize("dead_zone", [None, 0.0, 0.5])
def test_where_the_inequality_says_nothing_the_bound_is_one(dead_zone):
    """Every episode costs ten limits: X is always 1, its variance 0, and B = 0 promises nothing."""
    law = law_of(np.append(np.zeros(10), 1.0))
    assert law.guaranteed_violation(1.0, dead_zone) == 1
    assert law_of([0.0, 1 - 1e-16]).guaranteed_violation(0.9, 0.5) == pytest.approx(1)
    assert law_of([1.0]).guaranteed_violation(1.0, dead_zone) == 0


def random_laws(count, seed):
    """Laws on up to 12 costs, some of them the limit itself, below it, or many limits above it."""
    rng = np.random.default_rng(seed)
    for _ in range(count):
        limit = rng.uniform(0.1, 20)
        shares = [0.0, rng.uniform(0, 1), 1.0, rng.uniform(0.9, 1.1), rng.exponential(3)]
        support = np.unique(limit * np.append(rng.choice(shares, 6), [1.0, *rng.uniform(0, 2, 4)]))
        law = law_of(rng.dirichlet(np.full(len(support), rng.choice([0.05, 0.3, 1.0]))), support)
        yield law, limit, rng


def test_the_bound_holds_for_every_law():
    tight = 0
    for law, limit, rng in random_laws(2000, seed=0):
        dead_zone = rng.choice([0.0, rng.uniform(0, 1), 1 - 1e-9])
        bound = law.guaranteed_violation(limit, dead_zone)
        assert law.violation(limit) <= bound + 1e-12
        assert 0 <= bound <= 1 + 1e-12
        tight += bound < 1.01 * law.violation(limit)
        epsilon = rng.uniform(0.01, 0.5)
        if (
            law.cantelli(limit, epsilon, dead_zone) <= 0
            and law.shaped_moments(limit, dead_zone)[0] < 1 - 1e-9
        ):
            assert law.violation(limit) <= epsilon + 1e-9
    assert tight > 40  # it is not all slack


def test_a_larger_dead_zone_never_weakens_the_bound_of_any_law():
    strictly = 0
    for law, limit, rng in random_laws(1000, seed=1):
        zones = [None, *np.sort(rng.uniform(0, 1, 6))]
        bounds = [law.guaranteed_violation(limit, zone) for zone in zones]
        assert (np.diff(bounds) <= 1e-9).all()
        strictly += bounds[-1] < bounds[0] - 0.01
    assert strictly > 300


# The best return: complete enumeration of all policies of tiny processes.


def best_of_all(laws, variable, bound, epsilon):
    """Fixing E[X] = m makes the constraint linear: beta E[X^2] <= m^2 / epsilon - 2 b m + b^2."""
    means, squares = laws[:, :-1] @ variable, laws[:, :-1] @ variable**2

    def best_with_mean(mean):
        solution = linprog(
            -laws[:, -1],
            A_ub=(1 / epsilon - 1) * squares[None],
            b_ub=[mean**2 / epsilon - 2 * bound * mean + bound**2],
            A_eq=np.stack([np.ones(len(laws)), means]),
            b_eq=[1, mean],
            bounds=(0, None),
        )
        return -solution.fun if solution.status == 0 else -np.inf

    low, high, best = means.min(), min(means.max(), 0.999 * bound), -np.inf
    for count in (41, *[13] * 7):  # zoom in on the best mean
        grid = np.linspace(low, high, count)
        values = [best_with_mean(mean) for mean in grid]
        best = max(best, *values)
        middle, reach = grid[int(np.argmax(values))], grid[1] - grid[0]
        low, high = max(middle - reach, low), min(middle + reach, high)
    return best


@pytest.mark.parametrize(
    ("seed", "limit", "epsilon", "dead_zone"),
    [
        *((*setting, None) for setting in SETTINGS[1:6]),
        (0, 0.5, 0.3, 0.0),
        (0, 2.5, 0.1, 0.5),
        (3, 2.0, 0.2, 0.4),  # costs of exactly the limit
        (4, 2.3, 0.3, 0.7),
        (2, 1.0, 0.2, 0.5),  # no policy
    ],
)
def test_the_optimum_under_cantelli_equals_enumeration(seed, limit, epsilon, dead_zone):
    mdp, laws = enumerated(seed)
    variable, bound = mdp.support, limit
    if dead_zone is not None:
        variable, bound = np.clip((variable / limit - dead_zone) / (1 - dead_zone), 0, 1), 1.0
    expected = best_of_all(laws, variable, bound, epsilon)
    optimum = best_or_none(best_under_cantelli, mdp, limit, epsilon, dead_zone=dead_zone)
    if np.isinf(expected):
        assert optimum is None
    else:
        assert optimum.value == pytest.approx(expected, abs=5e-6)


@given(st.integers(0, 10_000), st.floats(0.2, 4), st.floats(0.02, 0.6), st.floats(0, 0.95))
@example(17, 1.0, 0.1, 0.5)
@example(0, 0.5, 0.5, 0.0)  # the best policy's cost always equals the limit
@settings(max_examples=25, deadline=None)
def test_optima_are_safe_certified_and_grow_with_the_dead_zone(seed, limit, epsilon, dead_zone):
    mdp, pool = random_mdp(seed, horizon=5, unit=0.5, most_cost=2), []
    zones = (None, dead_zone / 2, dead_zone)
    optima = [
        best_or_none(best_under_cantelli, mdp, limit, epsilon, pool, dead_zone=zone)
        for zone in zones
    ]
    for optimum, zone in zip(optima, zones, strict=True):
        if optimum is not None:
            gap = optimum.upper_bound - optimum.value
            assert 0 <= gap <= 1.001e-6 * max(1, optimum.value)
            assert optimum.law.guaranteed_violation(limit, zone) <= epsilon + 1e-6
            assert optimum.law.violation(limit) <= epsilon + 1e-6
    values = [-1e9 if optimum is None else optimum.value for optimum in optima]
    assert (np.diff(values) >= -2e-6 * max(1, values[-1])).all()


def test_always_violating_is_not_safe():
    """The saturated cost of a process that always costs four limits is always 1, so B = 0."""
    with pytest.raises(Infeasible):
        best_under_cantelli(line([2, 2]), 1.0, 0.1, dead_zone=0.0)


# IcyLake, limit 5.5, epsilon 0.02, and a lake where the paper's bound admits no policy.


def test_the_shaped_optima_of_the_lake():
    pool = []
    known = {0.0: (0.90897, 0.0007), 0.6: (0.97523, 0.0104), 0.8: (0.98291, 0.0147)}
    for dead_zone, (value, violation) in known.items():
        optimum = best_under_cantelli(LAKE, 5.5, 0.02, pool, dead_zone=dead_zone)
        assert optimum.value == pytest.approx(value, abs=1e-5)
        assert optimum.upper_bound - optimum.value <= 1.001e-6
        assert optimum.law.violation(5.5) == pytest.approx(violation, abs=6e-5)
        # It binds
        assert optimum.law.guaranteed_violation(5.5, dead_zone) == pytest.approx(0.02, abs=1e-6)
    assert best_under_cvar(LAKE, 5.5, 0.02, pool).value < known[0.6][0]


def test_a_lake_where_only_a_dead_zone_leaves_a_policy():
    """The numbers of docs/exact.md."""
    mdp, pool = from_environment(IcyLake(map=HARD_LAKE)), []
    for dead_zone, value in ((None, None), (0.2, None), (0.4, 0.637443), (0.8, 0.805865)):
        optimum = best_or_none(best_under_cantelli, mdp, 3.5, 0.05, pool, dead_zone=dead_zone)
        assert (optimum and optimum.value) == (value and pytest.approx(value, abs=2e-6))
    for solve, value in ((best_under_var, 0.831722), (best_under_cvar, 0.579997)):
        assert solve(mdp, 3.5, 0.05, pool).value == pytest.approx(value, abs=1e-6)


@pytest.mark.parametrize("dead_zone", [-0.1, 1.0, float("nan")])
def test_a_dead_zone_is_a_share_of_the_limit(dead_zone):
    with pytest.raises(CanaryError, match=r"dead.zone"):
        best_under_cantelli(random_mdp(0), 1.0, 0.1, dead_zone=dead_zone)
    with pytest.raises(CanaryError, match=r"dead.zone"):
        law_of([1.0]).guaranteed_violation(1.0, dead_zone)
    with pytest.raises(CanaryError, match="positive"):
        best_under_cantelli(random_mdp(0), 0.0, 0.1, dead_zone=0.5)
