"""The dead zone that follows the violations: up while they are rare, down when they are not, never
out of range."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from canary.numerics.dead_zone import EPISODES, RATE, TARGET, WIDEST, followed
from canary.numerics.moments import EpisodeWindow
from problems.terms import make_terms

RING, LIMIT = 512, 5.5
follow = jax.jit(followed)


def window(episodes: int, violations: int, new: int) -> EpisodeWindow:
    """The newest episodes, some of which violate; a cost equal to the limit does not."""
    cost = jnp.where(jnp.arange(RING) < violations, LIMIT + 1, LIMIT)
    return EpisodeWindow(cost, cost, jnp.ones(RING), jnp.int32(episodes), jnp.int32(new))


def after(start, episodes, violations, new=50, epsilon=0.05):
    terms = make_terms(LIMIT, epsilon)
    return float(follow(jnp.float32(start), window(episodes, violations, new), terms))


def test_it_rises_while_violations_are_rare_and_falls_when_they_are_not():
    assert after(0.4, 500, 0) > 0.4
    assert after(0.4, 500, 12) > 0.4  # 12.5 of 501 is a little less than half of epsilon
    assert after(0.4, 500, 13) < 0.4
    assert after(0.4, 500, 100) < after(0.4, 500, 25) < 0.4


def test_it_moves_by_what_the_batch_adds():
    rate = 10.5 / 501
    expected = 0.4 + RATE * 50 / EPISODES * (TARGET - rate / 0.05)
    assert after(0.4, 500, 10) == pytest.approx(expected, rel=1e-5)
    assert after(0.4, 500, 10, new=0) == pytest.approx(0.4)
    # No more than that at once
    assert after(0.4, 500, 500) == pytest.approx(0.4 - 2 * RATE * 50 / EPISODES)


@settings(deadline=None, max_examples=200)
@given(
    st.floats(0, WIDEST),
    st.integers(0, 512),
    st.integers(0, 512),
    st.integers(0, 600),
    st.floats(1e-4, 0.9),
)
def test_it_stays_in_its_range(start, episodes, violations, new, epsilon):
    assert 0 <= after(start, episodes, violations, new, epsilon) <= np.float32(WIDEST)


@given(st.integers(0, 400), st.floats(1e-4, 0.9))
@settings(deadline=None, max_examples=200)
def test_few_episodes_never_look_safe(episodes, epsilon):
    """Without a single violation it takes 1 / epsilon episodes before the zone widens."""
    rises = after(0.2, episodes, 0, 50, epsilon) > 0.2 + 1e-6
    if (episodes + 1) * epsilon < 1:
        assert not rises


def test_at_a_tiny_epsilon_it_never_rises():
    assert after(0.2, 500, 0, 500, epsilon=1e-3) < 0.2


def test_many_updates_settle_between_its_ends():
    zone = 0.0
    for _ in range(200):
        zone = after(zone, 500, 0)
    assert zone == pytest.approx(WIDEST)
    for _ in range(200):
        zone = after(zone, 500, 400)
    assert zone == 0
