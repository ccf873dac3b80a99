"""Episodes as functions of a seed and actions: live environments are a cache, and what cannot be
brought back is reported."""

import numpy as np
import pytest
from gymnasium import spaces

from canary.host.episodes import TRUNCATED, Episodes
from canary.host.player import Player, Recipe
from canary.host.spaces import action_decoder
from problems.host_environments import Walk

IDENTITY = np.array([[3, 1], [4, 1]], np.uint32)
ACTIONS = np.random.default_rng(0).uniform(-1, 1, (2, 50, 2)).astype(np.float32)


class Restless(Walk):
    """Ends at a step that no seed decides: earlier each time it is reset."""

    def step(self, action):
        observation, reward, _, _, info = super().step(action)
        return observation, reward, self.time == 10 // self.resets, False, info


def episodes(kind, **arguments):
    recipe = Recipe(kind, arguments, "info:cost", 50)
    return Episodes(recipe, Player(recipe), 2, 0)


def play(live, steps):
    live.start(live.everyone, IDENTITY)
    for now in range(steps):
        live.step(slice(None), ACTIONS[:, now], 1.0)


def state(live):
    return tuple(each.copy() for each in (live.identity, live.steps, live.actions, live.table))


def test_what_is_not_live_is_replayed():
    first, second = (episodes(Walk, noise=0.2, drift=0.1) for _ in range(2))
    play(first, 6)
    stored = state(first)
    assert second.take_up(*stored).all()
    for live in (first, second):
        live.step(slice(None), ACTIONS[:, 6], 1.0)
    np.testing.assert_array_equal(first.table, second.table)
    assert first.take_up(*stored).all()  # back again: its environments have moved on
    first.step(slice(None), ACTIONS[:, 6], 1.0)
    np.testing.assert_array_equal(first.table, second.table)


def test_episodes_that_end_earlier_the_second_time_cannot_be_brought_back():
    live = episodes(Restless, noise=0.0, drift=0.0)
    play(live, 8)
    stored = state(live)
    live.start(live.everyone, IDENTITY + 1)
    assert not live.take_up(*stored).any()


def test_one_episode_per_lane_to_its_end():
    live = episodes(Walk, noise=0.0, drift=0.0)
    moved = list(live.play(np.array([1]), IDENTITY[1:], lambda now: ACTIONS[:, now]))
    assert len(moved) == 51
    assert live.table[1, TRUNCATED] == 1
    assert live.steps.tolist() == [0, 50]


@pytest.mark.parametrize("start", [0, 5])
def test_counted_actions_are_those_that_the_space_itself_samples(start):
    space = spaces.Discrete(3, start=start)
    decode, size, count = action_decoder(space, "counting")
    assert (size, count) == (1, 3)
    decoded = decode(np.array([[0.0], [2.0]], np.float32))
    assert decoded == [start, start + 2]
    assert {type(action) for action in decoded} == {type(space.sample())}
    assert all(action in space for action in decoded)
