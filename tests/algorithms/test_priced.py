"""The price of a constraint: where its controller goes, and what the policy follows."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from canary.algorithms.advantages import Batch
from canary.algorithms.base import EstimationConfig
from canary.algorithms.priced import (
    Price,
    expected_sum,
    highest_price,
    next_price,
    priced_advantage,
    priced_objective,
)
from canary.numerics.costs import empty_window, record_episodes
from problems.probe_mdps import EPSILON, LIMIT, population
from problems.terms import make_terms

LEAST, MOST = 0.02, 12.0
RNG = np.random.default_rng(0)
REWARD, COST = RNG.normal(2, 3, (40, 5)), RNG.exponential(0.1, (40, 5))
advance = jax.jit(lambda price, level: next_price(price, level, MOST, LEAST))
levels = st.one_of(st.floats(0, 1e6, width=32), st.just(float("nan")), st.just(float("inf")))


def after(log_integral: float, level: float) -> tuple[float, float]:
    price, multiplier = advance(Price(jnp.float32(log_integral)), jnp.float32(level))
    return float(price.log_integral), float(multiplier)


@pytest.mark.parametrize("log_integral", [-1.0, 0.0, 1.0])
def test_the_price_rises_above_the_allowed_level_and_falls_below_it(log_integral):
    high, dear = after(log_integral, 1.5)
    low, cheap = after(log_integral, 1 / 1.5)
    assert low < log_integral < high
    assert cheap < np.exp(low) < np.exp(high) < dear  # the proportional part goes further
    assert high - log_integral == pytest.approx(log_integral - low, abs=1e-6)  # in logarithms


def test_the_allowed_level_is_the_fixed_point():
    assert after(0.7, 1.0) == (pytest.approx(0.7), pytest.approx(np.exp(0.7)))


def test_no_measurement_is_no_error():
    assert after(0.7, np.nan) == after(0.7, 1.0)


def test_an_error_of_any_size_moves_the_price_by_a_bounded_amount():
    assert after(0.0, np.inf) == after(0.0, 1e6) == after(0.0, np.e + 1e-3)
    assert after(0.0, 0.0) == after(0.0, 1e-6) == after(0.0, 1 / np.e - 1e-3)


@settings(deadline=None, max_examples=50)
@given(st.lists(levels, min_size=1, max_size=30))
def test_the_price_stays_within_its_caps_and_leaves_them_at_once(measured):
    price = Price(jnp.zeros(()))
    for level in [*measured, *[50.0] * 5]:
        price, multiplier = advance(price, jnp.float32(level))
        assert LEAST * 0.999 <= float(multiplier) <= MOST * 1.001
        assert np.log(LEAST) - 1e-6 <= float(price.log_integral) <= np.log(MOST) + 1e-6
    at_cap = Price(jnp.float32(np.log(MOST)))
    for _ in range(5):
        at_cap, _ = advance(at_cap, jnp.float32(9.0))
    assert float(advance(at_cap, jnp.float32(0.5))[1]) < MOST  # no windup


def test_the_highest_price_is_lower_where_the_window_renews_slowly():
    assert highest_price(0.04, 0) == pytest.approx(8)
    assert highest_price(0.04, 1) == pytest.approx(40)
    assert highest_price(0.2, 0) == pytest.approx(40)
    assert highest_price(0.001, 0) == pytest.approx(np.exp(2))


def test_a_policy_that_was_trained_before_may_pay_the_highest_price_at_once():
    rollout, _, _ = population(1.0)
    nothing = jnp.zeros_like(rollout.cost)
    window = record_episodes(empty_window(rollout.done.size, ()), rollout.episodes)
    batch = Batch(rollout, (nothing, nothing), *jnp.zeros((2, 2, *nothing.shape)), window)
    follow = priced_objective([expected_sum(EstimationConfig(), "chance")], 1, 1)

    def price(**how):
        terms = replace(make_terms(LIMIT, EPSILON), **how)
        return float(follow(batch, terms, Price(jnp.float32(99))).metrics["multiplier"])

    late = price(iteration=jnp.asarray(10))
    assert price(fine_tuning=True) == pytest.approx(late) == pytest.approx(5 * price())


@pytest.mark.parametrize("multiplier", [0.05, 1.0, 10.0])
def test_each_side_has_its_share_whatever_the_units(multiplier):
    """With uncorrelated sides the deviation of each part is 1 / (1 + lambda) and lambda / (1 +
    lambda)."""
    found = np.asarray(priced_advantage(REWARD, [COST], [jnp.asarray(multiplier)]))
    other = priced_advantage(1e3 * REWARD - 7, [1e-3 * COST + 1e-3], [jnp.asarray(multiplier)])
    np.testing.assert_allclose(other, found, rtol=1e-3, atol=1e-4)
    by_hand = (REWARD - REWARD.mean()) / REWARD.std() - multiplier * (
        COST - COST.mean()
    ) / COST.std()
    np.testing.assert_allclose(found, by_hand / (1 + multiplier), rtol=1e-4, atol=1e-5)
    alone = [
        np.std(priced_advantage(reward, [cost], [jnp.asarray(multiplier)]))
        for reward, cost in ((REWARD, 0 * COST), (0 * REWARD, COST))
    ]
    np.testing.assert_allclose(alone, np.array([1, multiplier]) / (1 + multiplier), rtol=1e-4)


def test_a_state_without_a_price_follows_the_reward_alone():
    price = jnp.zeros((40, 5)).at[:20].set(1e6)
    found = np.asarray(priced_advantage(REWARD, [COST], [price]))
    reward, cost = ((side - side.mean()) / side.std() for side in (REWARD, COST))
    np.testing.assert_allclose(found[20:], reward[20:], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(found[:20], -cost[:20], rtol=1e-4, atol=1e-4)


def test_what_does_not_vary_or_is_no_number_has_no_say():
    constant = jnp.full((40, 5), 3.0)
    assert not np.asarray(priced_advantage(constant, [2 * constant], [jnp.asarray(2.0)])).any()
    broken = jnp.asarray(COST).at[0, 0].set(jnp.nan)
    assert np.isfinite(priced_advantage(REWARD, [broken], [jnp.asarray(2.0)])).all()


def test_several_prices_start_lower():
    one, two = Price.at_start(), Price.at_start(2)
    assert (one.log_integral > two.log_integral).all()
