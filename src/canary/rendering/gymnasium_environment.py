"""A Gymnasium environment by its own renderer, scaled to fit."""

import warnings
from collections.abc import Iterator, Sequence

import numpy as np
from PIL import Image

from canary.environments.gymnasium_environment import GymnasiumEnvironment
from canary.rendering.canvas import WHITE
from canary.rendering.episode import Picture, RecordedEpisode


def draw(
    environment: GymnasiumEnvironment, episode: RecordedEpisode, moments: Sequence[int], size: int
) -> Iterator[Picture]:
    """A picture per moment. The environment plays the episode again; a warning says where that
    differs from the recorded one."""
    is_same = True
    shots = environment.shots(episode.states.inner, moments)
    for now, (picture, seen) in zip(moments, shots, strict=True):
        recorded = episode.states.observation[now]
        if is_same and not np.allclose(seen, recorded, rtol=1e-5, atol=1e-6, equal_nan=True):
            is_same = False
            warnings.warn(
                f"Episode {episode.number} of seed {episode.seed} differs by step {now} when it is "
                "played again for its pictures: the environment is not a function of its seed and "
                "actions, and the pictures do not belong to the costs beside them.",
                stacklevel=2,
            )
        yield fitted(picture, size)


def check_graphics(environment: GymnasiumEnvironment) -> None:
    """Raise a sentence if it cannot be drawn here, before any episode is played."""
    environment.check_renderer()


def fitted(picture: Picture, size: int) -> Picture:
    """The whole picture in the middle of a square, as large as possible."""
    height, width = picture.shape[:2]
    scale = size / max(height, width)
    shape = max(1, round(width * scale)), max(1, round(height * scale))
    square = Image.new("RGB", (size, size), WHITE)
    inside = Image.fromarray(picture).resize(shape, Image.Resampling.LANCZOS)
    square.paste(inside, ((size - shape[0]) // 2, (size - shape[1]) // 2))
    return np.asarray(square)
