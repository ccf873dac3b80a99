"""The costs of episodes in the order of their numbers, short enough to read: "812x0 1 14x0 3".

A certificate lists the distinct costs once. Its order says which of them every episode had, as runs
of places in that list: 812 episodes with the first cost, one with the second, and so on. With the
order anybody can see when the test could have stopped, and can play any single episode again and
compare its cost.
"""

import re
from collections.abc import Sequence
from itertools import groupby

import numpy as np
from jaxtyping import Int

from canary.errors import CanaryError

RUN = re.compile(r"(?:(\d{1,12})x)?(\d{1,9})")


def encode(places: Sequence[int] | Int[np.ndarray, "episode"]) -> str:
    """Runs of equal places, as text."""
    runs = (
        (place, sum(1 for _ in group)) for place, group in groupby(int(place) for place in places)
    )
    return " ".join(f"{length}x{place}" if length > 1 else f"{place}" for place, length in runs)


def decode(text: str, counts: Sequence[int]) -> Int[np.ndarray, "episode"]:
    """The places again, if each occurs as often as `counts` says; else a sentence. Takes no more
    room than they do."""
    if not isinstance(text, str):
        raise CanaryError("the order of its episodes is not a text.")
    places, lengths = [], []
    for word in text.split(" ") if text else []:
        match = RUN.fullmatch(word)
        if match is None:
            raise CanaryError(
                f"the order of its episodes has an entry {word[:20]!r} that means nothing."
            )
        places.append(int(match[2]))
        lengths.append(int(match[1] or 1))
    found = dict.fromkeys(range(len(counts)), 0)
    for place, length in zip(places, lengths, strict=True):
        found[place] = found.get(place, 0) + length
    if list(found.items()) != list(enumerate(counts)):
        raise CanaryError("the order of its episodes does not agree with the numbers of its costs.")
    result = np.repeat(np.array(places, int), np.array(lengths, int))
    if encode(result) != text:
        raise CanaryError("the order of its episodes is not written in the shortest way.")
    return result
