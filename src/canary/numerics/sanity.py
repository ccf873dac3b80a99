"""Numbers that can be worked with: finite, and not so large that their squares overflow."""

from typing import Any

LARGEST = 1e15


def sane(numbers: Any) -> Any:
    """Entry by entry, for arrays of numpy and of JAX; what is not a number is not sane."""
    return abs(numbers) <= LARGEST
