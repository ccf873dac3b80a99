"""What a class of attacks is."""

from pathlib import Path
from typing import Any

import numpy as np


class Attack:
    name: str
    """In the table."""
    tries: int
    """How many there are, or how many make a full run of the suite."""

    def prepare(self, folder: Path) -> None:
        """Make what is attacked, in an empty directory."""
        raise NotImplementedError

    def attempt(self, number: int, random: np.random.Generator) -> str | None:
        """One attack; None if canary stood it, else a sentence about what happened."""
        raise NotImplementedError

    def close(self) -> None:
        """Leave this process as it was."""


def flipped(data: bytes, random: np.random.Generator) -> bytes:
    """One random bit of a file turned over."""
    place = int(random.integers(len(data)))
    return data[:place] + bytes([data[place] ^ (1 << int(random.integers(8)))]) + data[place + 1 :]


def leaves(value: Any, path: tuple = ()) -> list[tuple]:
    """The places of all plain values in JSON data."""
    if isinstance(value, dict):
        return [leaf for key in value for leaf in leaves(value[key], (*path, key))]
    if isinstance(value, list) and value:
        return [
            leaf for index in range(len(value)) for leaf in leaves(value[index], (*path, index))
        ]
    return [path]


def at(data: Any, path: tuple) -> Any:
    for step in path:
        data = data[step]
    return data


def put(data: Any, path: tuple, value: Any) -> None:
    at(data, path[:-1])[path[-1]] = value
