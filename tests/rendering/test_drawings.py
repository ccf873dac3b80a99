"""The drawings: what is where, how the path grows, and what happens without a drawing or without
OpenGL."""

import ctypes.util
import sys

import numpy as np
import pytest

from canary.environments.point_goal import PointGoal, PointGoal2500
from canary.errors import CanaryError
from canary.rendering import eco_ant, icy_lake, point_goal
from canary.rendering.canvas import AMBER, BLUE, CANARY, RED
from canary.rendering.run import drawing_for
from rendering.recorded_episodes import LAKE, drive, lake_walk

SIZE = 240


def count(picture, colour: str, tolerance: int = 40) -> int:
    wanted = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)])
    return int((np.abs(picture.astype(int) - wanted).max(-1) <= tolerance).sum())


def centre(picture, colour: str) -> np.ndarray:
    wanted = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)])
    return np.argwhere(np.abs(picture.astype(int) - wanted).max(-1) <= 30).mean(0)


def test_the_walk_over_the_lake_grows_and_ends_where_the_walker_is():
    episode = lake_walk([0, 1, 2, 5, 8])
    pictures = list(icy_lake.draw(LAKE, episode, range(5), SIZE))
    assert {(picture.shape, picture.dtype) for picture in pictures} == {
        ((SIZE, SIZE, 3), np.dtype(np.uint8))
    }
    lengths = [count(picture, BLUE) for picture in pictures]
    assert lengths == sorted(set(lengths))
    for picture, tile in zip(pictures, (0, 1, 2, 5, 8), strict=True):
        assert (
            np.abs(centre(picture, CANARY) / SIZE * 3 - np.array(divmod(tile, 3)) - 0.5).max()
            < 0.15
        )


def test_the_drive_grows_and_is_amber_where_it_cost():
    path = np.stack([np.linspace(-0.8, 0.8, 17), np.zeros(17)], axis=-1)
    cost = np.zeros(17)
    cost[6:9] = 1.0
    pictures = list(point_goal.draw(PointGoal(), drive(path, cost), range(17), SIZE))
    free = list(point_goal.draw(PointGoal(), drive(path, 0 * cost), range(17), SIZE))
    blue = [count(picture, BLUE) for picture in free]
    assert blue[0] < 5
    assert (np.diff(blue[2:]) > 0).all()
    assert count(pictures[16], AMBER, 8) > 10
    assert (pictures[5] == free[5]).all()
    assert count(free[16], AMBER, 8) == 0
    for picture in pictures:
        assert count(picture, RED, 5) == 0


def test_an_environment_without_a_drawing_is_a_sentence():
    assert drawing_for(PointGoal2500()) is point_goal.draw  # a kind of PointGoal
    with pytest.raises(CanaryError, match="no drawing of object"):
        drawing_for(object())


def test_no_opengl_is_a_sentence_that_says_what_to_install(monkeypatch):
    for name in ("MUJOCO_GL", "DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(ctypes.util, "find_library", lambda name: None)
    with pytest.raises(CanaryError, match="apt install libegl1"):
        eco_ant.open_graphics(16)
    monkeypatch.setenv("MUJOCO_GL", "EGL")
    assert eco_ant.graphics_kind() == "egl"
