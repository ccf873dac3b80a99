"""A recorded episode, and what a drawing of an environment is."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, UInt8

from canary.environments.protocol import EnvironmentState

Picture = UInt8[np.ndarray, "height width 3"]


@dataclass(frozen=True, kw_only=True)
class RecordedEpisode:
    """States, spent cost and return at times 0 (after the reset), 1, ..., length, as numpy arrays
    in raw units."""

    caption: str
    """What it is an example of: "worst of 200 episodes", "median"."""
    seed: int
    number: int
    """It is episode `number` of seed `seed` in the evaluation."""
    states: EnvironmentState
    """The first axis of every leaf is the time."""
    spent: Float[np.ndarray, "time"]
    reward: Float[np.ndarray, "time"]

    @property
    def length(self) -> int:
        return len(self.spent) - 1

    @property
    def cost(self) -> float:
        return float(self.spent[-1])


Drawing = Callable[[Any, RecordedEpisode, Sequence[int], int], Iterator[Picture]]
"""`draw(environment, episode, moments, size)` yields a (size, size, 3) uint8 picture for each
moment. Moments are increasing times between 0 and the episode's length."""


def frame_moments(length: int, most: int) -> np.ndarray:
    """The times of at most `most` frames: every step or every 2nd, 3rd, ..., and always the last."""
    stride = max(1, -(-length // (most - 1)))
    return np.append(np.arange(0, length, stride), length)
