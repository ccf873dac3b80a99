"""The exception for mistakes of users, and suggestions for unknown names."""

import difflib
from collections.abc import Iterable


class CanaryError(ValueError):
    """A mistake that one sentence explains: what is wrong, and what to do about it."""


def nearest(name: str, known: Iterable[str]) -> str:
    """`; did you mean X?` or, if no name is similar, the list of names."""
    known = sorted(known)
    matches = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
    if matches:
        return f"; did you mean {' or '.join(matches)}?"
    return f"; known are {', '.join(known)}." if known else "."
