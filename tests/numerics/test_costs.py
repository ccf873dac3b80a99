"""The shaped cost with the guarantee of Cantelli's inequality, and the augmented cost."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from canary.numerics.costs import augmented_cost, shaped
from canary.numerics.risk import cantelli_probability

zones = st.one_of(st.just(0.0), st.floats(0, 0.95))


@pytest.mark.parametrize(
    ("cost", "expected"), [(0, 0), (0.2, 0), (0.4, 0), (0.7, 0.5), (1, 1), (9, 1)]
)
def test_costs_are_free_up_to_the_dead_zone_and_saturate_at_the_limit(cost, expected):
    assert shaped(np.float64(cost), 0.4) == pytest.approx(expected)
    assert shaped(jnp.float32(cost), jnp.float32(0.4)) == pytest.approx(expected)
    assert shaped(np.float64(cost), None) == cost


@settings(deadline=None)
@given(st.floats(1, 5, width=32), st.floats(0, 0.96875, width=32))
def test_no_rounding_makes_a_violation_less_than_one(cost, zone):
    assert shaped(jnp.float32(cost), jnp.float32(zone)) == 1


@settings(deadline=None, max_examples=50)
@given(st.integers(0, 2**32 - 1), zones)
def test_the_bound_is_a_guarantee_for_any_law(seed, zone):
    """Hundreds of laws at a time, of costs near the limit, rarely or nearly always above it."""
    rng = np.random.default_rng(seed)
    cost = rng.choice([0.0, 0.5, 0.99, 1.0, 1.01, 3.0], (200, 4)) + rng.choice(
        [0, 0.1], (200, 1)
    ) * rng.normal(size=(200, 4))
    cost = np.maximum(cost, 0)
    chance = rng.dirichlet(rng.choice([0.05, 1.0]) * np.ones(4), 200)
    violation = (chance * (cost > 1)).sum(1)
    left = 1 - shaped(cost, zone)
    gap = (chance * left).sum(1)  # of the mean; where all costs violate it is 0, without rounding
    variance = (chance * (left - gap[:, None]) ** 2).sum(1)
    with jax.enable_x64(True):  # the gap may be 1e-7
        bound = np.asarray(cantelli_probability(1 - gap, variance, 1.0, or_equal=True))
    assert (violation <= bound + 1e-6).all()
    assert (bound <= 1).all()


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.floats(-3, 3), min_size=1, max_size=30), st.sampled_from([1.0, 0.99, 0.9, 0.5, 0.0])
)
def test_discounted_augmented_costs_sum_to_the_square(costs, gamma):
    costs = np.array(costs)
    discount = gamma ** np.arange(len(costs))
    spent = np.concatenate([[0], np.cumsum(discount * costs)[:-1]])
    square = np.asarray(augmented_cost(costs, spent, discount))
    np.testing.assert_allclose(
        (discount * square).sum(), (discount * costs).sum() ** 2, rtol=1e-9, atol=1e-9
    )
