"""The drawings: what is where, and how the path grows."""

from types import SimpleNamespace

import numpy as np
import pytest

from canary.environments.eco_ant import INITIAL_POSITION, EcoAnt
from canary.environments.point_goal import PointGoal, PointGoal2500
from canary.errors import CanaryError
from canary.rendering import eco_ant, icy_lake, point_goal
from canary.rendering.panel import AMBER, BLUE, CANARY
from canary.rendering.run import drawing_for
from rendering.recorded_episodes import LAKE, drive, episode, lake_walk

SIZE = 240


def near(picture, colour: str, tolerance: int = 40) -> np.ndarray:
    """Where a picture has about this colour."""
    wanted = np.array(list(bytes.fromhex(colour[1:])))
    return np.abs(picture.astype(int) - wanted).max(-1) <= tolerance


def test_the_walk_over_the_lake_grows_and_ends_where_the_walker_is():
    tiles = [0, 1, 2, 5, 8]
    pictures = list(icy_lake.draw(LAKE, lake_walk(tiles), range(5), SIZE))
    assert {(picture.shape, picture.dtype) for picture in pictures} == {
        ((SIZE, SIZE, 3), np.dtype(np.uint8))
    }
    lengths = [near(picture, BLUE).sum() for picture in pictures]
    assert lengths == sorted(set(lengths))
    for picture, tile in zip(pictures, tiles, strict=True):
        centre = np.argwhere(near(picture, CANARY, 30)).mean(0) / SIZE * 3
        np.testing.assert_allclose(centre, np.array(divmod(tile, 3)) + 0.5, atol=0.15)


def test_the_drive_grows_and_is_amber_where_it_cost():
    path = np.stack([np.linspace(-0.8, 0.8, 17), np.zeros(17)], axis=-1)
    cost = np.zeros(17)
    cost[6:9] = 1.0
    pictures, free = (
        list(point_goal.draw(PointGoal(), drive(path, each), range(17), SIZE))
        for each in (cost, 0 * cost)
    )
    blue = [near(picture, BLUE).sum() for picture in free]
    assert blue[0] < 5
    assert (np.diff(blue[2:]) > 0).all()
    assert near(pictures[16], AMBER, 8).sum() > 10
    assert (pictures[5] == free[5]).all()
    assert not near(free[16], AMBER, 8).any()


def ant_walk(steps: int):
    qpos = np.tile(INITIAL_POSITION, (steps + 1, 1))
    qpos[:, 0] = np.linspace(0, 0.02 * steps, steps + 1)
    return episode(SimpleNamespace(physics=SimpleNamespace(qpos=qpos)), np.ones(steps + 1))


def test_the_camera_follows_the_ant_and_the_path_grows_behind_it():
    pictures = np.stack(list(eco_ant.draw(EcoAnt(), ant_walk(40), [0, 20, 40], 96))).astype(int)
    red, green, blue = np.moveaxis(pictures, -1, 0)
    torso = (red > 150) & (red > green + 30) & (green > blue + 30)
    trail = (blue > red + 60).sum((1, 2))
    for picture in torso:
        assert 0.004 < picture.mean() < 0.2
        np.testing.assert_allclose(np.argwhere(picture).mean(0) / 96, 0.5, atol=0.2)
    assert trail[0] == 0 < trail[1] < trail[2]


def test_an_environment_names_its_drawing():
    assert drawing_for(PointGoal2500()) is point_goal.draw  # a kind of PointGoal
    with pytest.raises(CanaryError, match="no drawing of object"):
        drawing_for(object())
