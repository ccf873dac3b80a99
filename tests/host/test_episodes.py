"""Episodes as functions of a seed and actions: live environments are a cache, and what cannot be
brought back is told."""

import numpy as np
import pytest
from benchmarks.host_speed import measure
from gymnasium import spaces

from canary.errors import CanaryError
from canary.host.episodes import Episodes, Rows
from canary.host.player import Recipe
from canary.host.spaces import action_decoder
from canary.host.stage import LocalStage, SlotFailed
from problems.host_environments import Walk

LANES = np.arange(2)
IDENTITY = np.array([[3, 1], [4, 1]], np.uint32)


class Restless(Walk):
    """Ends at a step that no seed decides: later each time it is reset."""

    def step(self, action):
        observation, reward, _, _, info = super().step(action)
        return observation, reward, self.time == 10 // self.resets, False, info


def episodes(kind, **arguments):
    recipe = Recipe(lambda **given: kind(**given), arguments, "info:cost", 50)
    return Episodes("walk", lambda lanes: LocalStage(recipe))


def rows(steps, seen, actions):
    return Rows(IDENTITY, np.full(2, steps), actions, seen)


def play(live, steps, actions):
    seen = live.reset(IDENTITY, LANES)
    for time in range(steps):
        seen = live.step(rows(time, seen, actions), actions[:, time], LANES)[:, :2]
    return seen


def test_what_is_not_live_is_played_again():
    actions = np.random.default_rng(0).uniform(-1, 1, (2, 50, 2)).astype(np.float32)
    live = episodes(Walk, noise=0.2, drift=0.1)
    seen = play(live, 6, actions)
    expected = live.step(rows(6, seen, actions), actions[:, 6], LANES)
    live.close()
    np.testing.assert_array_equal(live.step(rows(6, seen, actions), actions[:, 6], LANES), expected)


def test_episodes_that_end_earlier_the_second_time_cannot_be_brought_back():
    actions = np.zeros((2, 50, 2), np.float32)
    live = episodes(Restless, noise=0.0, drift=0.0)
    seen = play(live, 8, actions)
    assert not live.revive(rows(8, seen, actions), LANES).any()
    with pytest.raises(
        CanaryError, match="walk cannot be brought back to step 8 of the episode of lane 0"
    ):
        live.step(rows(8, seen, actions), actions[:, 8], LANES)


def test_the_benchmark_measures_all_three():
    speeds = measure("CartPole-v1", steps=3, rounds=1, workers=0)
    assert len(speeds) == 3
    assert min(speeds) > 0


@pytest.mark.parametrize("spoilt", [[0], [1], [0, 1]])
def test_the_lane_that_saw_the_wrong_number_of_things_is_named(spoilt):
    """All lanes are encoded together, and still the first one that cannot be is found."""
    stage = LocalStage(Recipe(Walk, {}, "info:cost", 50))
    stage.reset([0, 1], [3, 4])
    for slot in spoilt:
        player = stage._players[slot]
        player._step = lambda action, step=player._step: (np.zeros(3), *step(action)[1:])
    with pytest.raises(SlotFailed, match=r"has 3 numbers, but .* says 2") as found:
        stage.step([0, 1], np.zeros((2, 2), np.float32))
    assert found.value.row == spoilt[0]


@pytest.mark.parametrize("start", [0, 5])
def test_counted_actions_are_those_that_the_space_itself_samples(start):
    space = spaces.Discrete(3, start=start)
    decode, size, count = action_decoder(space, "counting")
    assert (size, count) == (1, 3)
    decoded = decode(np.array([[0.0], [2.0]], np.float32))
    assert decoded == [start, start + 2]
    assert {type(action) for action in decoded} == {type(space.sample())}
    assert all(action in space for action in decoded)
