"""IcyLake: its tables against Gymnasium's, its dynamics against its tables."""

from dataclasses import replace

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.envs.toy_text.frozen_lake import MAPS
from hypothesis import given, settings
from hypothesis import strategies as st

from canary.environments.icy_lake import STANDARD_MAPS, IcyLake
from canary.errors import CanaryError

LEFT, DOWN, RIGHT, UP = range(4)
LAKE = IcyLake()


def at(lake, position, time=0):
    state = lake.reset(jax.random.key(0))
    return replace(state, inner=jnp.asarray(position, jnp.int32), time=jnp.asarray(time, jnp.int32))


def distribution(lake, state, action):
    chances = {}
    for successor, chance in zip(
        lake.successors[state, action], lake.successor_probabilities, strict=True
    ):
        chances[int(successor)] = chances.get(int(successor), 0.0) + float(chance)
    return chances


@pytest.mark.parametrize("name", ["4x4", "8x8"])
def test_transitions_equal_gymnasium_except_on_ice(name):
    lake = IcyLake(map=name)
    assert STANDARD_MAPS[name].split("/") == MAPS[name]
    table = gymnasium.make("FrozenLake-v1", map_name=name, is_slippery=True).unwrapped.P
    for state in np.flatnonzero(~lake.ice):
        for action in range(4):
            theirs = {}
            for chance, successor, _, _ in table[state][action]:
                theirs[successor] = theirs.get(successor, 0.0) + chance
            assert distribution(lake, state, action) == pytest.approx(theirs)


def test_the_only_difference_to_gymnasium_is_that_ice_can_be_left():
    assert list(np.flatnonzero(LAKE.ice)) == [5, 7, 11, 12]
    assert distribution(LAKE, 5, RIGHT) == pytest.approx({1: 1 / 3, 6: 1 / 3, 9: 1 / 3})


@pytest.mark.parametrize("time", [0, 99])
def test_entering_the_goal_pays_and_ends(time):
    """In the last step too: that is an end and not a cut."""
    state = IcyLake(slip=0.0).step(at(LAKE, 14, time), jnp.asarray(RIGHT), jax.random.key(0))
    assert (float(state.reward), float(state.cost)) == (1.0, 0.0)
    assert bool(state.terminated)
    assert not bool(state.truncated)


def test_ice_costs_on_entering_and_on_bumping_but_not_on_leaving():
    lake = IcyLake(slip=0.0)
    key = jax.random.key(0)
    entering = lake.step(at(lake, 8), jnp.asarray(DOWN), key)
    bumping = lake.step(entering, jnp.asarray(LEFT), key)
    leaving = lake.step(bumping, jnp.asarray(UP), key)
    assert [int(state.inner) for state in (entering, bumping, leaving)] == [12, 12, 8]
    assert [float(state.cost) for state in (entering, bumping, leaving)] == [1.0, 1.0, 0.0]
    assert not any(bool(state.terminated) for state in (entering, bumping, leaving))


@pytest.mark.parametrize("slip", [0.2, 0.5])
def test_slip_has_the_stated_frequencies(slip):
    lake, count = IcyLake(slip=slip), 10_000
    keys = jax.random.split(jax.random.key(3), count)
    landed = jax.vmap(lambda key: lake.step(at(lake, 9), jnp.asarray(RIGHT), key).inner)(keys)
    frequency = np.bincount(np.asarray(landed), minlength=16) / count
    expected = np.zeros(16)
    expected[[13, 10, 5]] = [slip, 1 - 2 * slip, slip]
    assert (frequency[expected == 0] == 0).all()
    assert np.abs(frequency - expected).max() < 5 * np.sqrt(0.25 / count)


@given(
    st.integers(1, 5).flatmap(
        lambda width: st.lists(
            st.text("FH", min_size=width, max_size=width), min_size=2, max_size=5
        )
    ),
    st.floats(0, 0.5),
)
@settings(max_examples=40, deadline=None)
def test_any_map_moves_to_neighbours_only(rows, slip):
    letters = "S" + "".join(rows)[1:-1] + "G"
    width = len(rows[0])
    lake = IcyLake(
        map="/".join(letters[i : i + width] for i in range(0, len(letters), width)), slip=slip
    )
    here = np.arange(len(letters))[:, None, None]
    moved = np.abs(here // width - lake.successors // width) + np.abs(
        here % width - lake.successors % width
    )
    assert (moved <= 1).all()
    assert (lake.successors[lake.goal] == np.flatnonzero(lake.goal)[0]).all()
    assert lake.successor_probabilities.sum() == pytest.approx(1.0)


@pytest.mark.parametrize("map", ["SFF/FG", "SXG", "FFG", "SSG", "SFF", "SFFFFG"])
def test_a_map_that_makes_no_sense_is_explained(map):
    with pytest.raises(CanaryError, match="5 moves" if map == "SFFFFG" else "exactly one S"):
        IcyLake(map=map, horizon=4)
