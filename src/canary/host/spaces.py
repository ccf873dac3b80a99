"""Gymnasium's spaces as vectors: what a network sees, and what its action means to the environment.

Spaces are known by what they have, not by their class, so that those of older packages work too.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from canary.errors import CanaryError


def observation_encoder(space: Any, label: str) -> tuple[Callable[[Any], np.ndarray], int, bool]:
    """Observation to float32 vector, its size, and whether its entries have physical units."""
    kind = type(space).__name__
    if kind == "Box":
        size = int(np.prod(space.shape))
        if len(space.shape) == 1 and space.dtype == np.float32:
            return lambda value: np.asarray(value, np.float32), size, True
        return lambda value: np.asarray(value, np.float32).ravel(), size, True
    if kind == "Discrete":
        one_hot, first = np.eye(int(space.n), dtype=np.float32), int(getattr(space, "start", 0))
        return lambda value: one_hot[int(value) - first], int(space.n), False
    try:
        from gymnasium.spaces.utils import flatdim, flatten

        size = int(flatdim(space))
    except Exception as error:
        raise CanaryError(
            f"The observation space of {label} ({space}) has no vector of fixed size; wrap the "
            "environment so "
            "that it has a Box or a Discrete one."
        ) from error
    return lambda value: np.asarray(flatten(space, value), np.float32), size, True


def action_decoder(
    space: Any, label: str
) -> tuple[Callable[[np.ndarray], Sequence[Any]], int, int | None]:
    """Action rows to the environments' actions, a row's size, and how many actions there are if
    they are counted.

    The entries of a continuous action are clipped to [-1, 1] and stretched to the bounds of the
    Box.
    """
    kind = type(space).__name__
    if kind == "Discrete":
        first = int(getattr(space, "start", 0))
        return lambda rows: [int(value) + first for value in rows[:, 0].tolist()], 1, int(space.n)
    if kind != "Box" or not np.issubdtype(space.dtype, np.floating):
        raise CanaryError(
            f"The action space of {label} is {space}; canary acts in Discrete and real-valued Box "
            "spaces. "
            "Wrap the environment so that it has one of them."
        )
    low, high = (
        np.asarray(space.low, np.float64).ravel(),
        np.asarray(space.high, np.float64).ravel(),
    )
    if not (np.isfinite(low).all() and np.isfinite(high).all()):
        raise CanaryError(
            f"The action space of {label} has no finite bounds, so [-1, 1] cannot be stretched to "
            "them; wrap the "
            "environment with gymnasium.wrappers.RescaleAction or TransformAction."
        )
    middle, half, shape, dtype = (high + low) / 2, (high - low) / 2, space.shape, space.dtype

    def decode(rows: np.ndarray) -> Sequence[Any]:
        # Of all lanes at once: a clip takes as long as a small step
        stretched = middle + half * np.clip(rows, -1.0, 1.0)
        return list(stretched.astype(dtype).reshape(-1, *shape))

    return decode, len(low), None
