"""The ant by MuJoCo's renderer, on machines that have OpenGL."""

from types import SimpleNamespace

import numpy as np
import pytest

from canary.environments.eco_ant import INITIAL_POSITION, EcoAnt
from canary.errors import CanaryError
from canary.rendering import eco_ant
from rendering.recorded_episodes import episode

SIZE = 96


@pytest.fixture(scope="module")
def graphics():
    """Drawing needs OpenGL, which a machine may lack; the skip then says what is missing."""
    try:
        eco_ant.check_graphics(EcoAnt())
    except CanaryError as error:
        pytest.skip(str(error))


def ant_walk(steps: int):
    qpos = np.tile(INITIAL_POSITION, (steps + 1, 1))
    qpos[:, 0] = np.linspace(0, 0.02 * steps, steps + 1)
    return episode(SimpleNamespace(physics=SimpleNamespace(qpos=qpos)), np.ones(steps + 1))


@pytest.mark.usefixtures("graphics")
def test_two_ants_are_drawn_in_turns_each_as_if_it_were_alone():
    ant, walk, other = EcoAnt(), ant_walk(40), ant_walk(3)
    alone = list(eco_ant.draw(ant, walk, [0, 20, 40], SIZE))
    assert {(picture.shape, picture.dtype) for picture in alone} == {
        ((SIZE, SIZE, 3), np.dtype(np.uint8))
    }
    first, second = (
        eco_ant.draw(ant, walk, [0, 20, 40], SIZE),
        eco_ant.draw(ant, other, [0, 3], SIZE),
    )
    turns = [next(first), next(second), next(first), next(second), next(first)]
    for drawing in (first, second):
        drawing.close()
    assert all((a == b).all() for a, b in zip(alone, turns[::2], strict=True))
    assert (turns[1] != turns[3]).any()

    def orange(picture):
        red, green, blue = np.moveaxis(picture.astype(int), -1, 0)
        return (red > 150) & (red > green + 30) & (green > blue + 30)

    def blue(picture):
        red, _, blue = np.moveaxis(picture.astype(int), -1, 0)
        return blue > red + 60

    for picture in alone:
        assert 0.01 < orange(picture).mean() < 0.2
        assert np.abs(np.argwhere(orange(picture)).mean(0) / SIZE - 0.5).max() < 0.2
    trail = [int(blue(picture).sum()) for picture in alone]
    assert trail[0] == 0
    assert trail[0] < trail[1] < trail[2]
