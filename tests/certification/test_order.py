"""The order of episodes: what was encoded comes back, and nothing else is read."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from canary.certification import order
from canary.errors import CanaryError


@given(st.lists(st.integers(0, 4), max_size=60))
def test_what_is_written_is_read(places: list[int]):
    counts = [places.count(place) for place in range(5)]
    assert order.decode(order.encode(places), counts).tolist() == places


def test_it_is_short():
    assert order.encode([0] * 812 + [1] + [0] * 14 + [3]) == "812x0 1 14x0 3"
    assert order.encode(np.zeros(10**5, int)) == "100000x0"


@pytest.mark.parametrize(
    ("text", "counts"),
    [
        ("3x0", [2]),
        ("2x0", [2, 1]),
        ("2x0 1", [2]),
        ("1x0 1x0", [2]),
        ("0 0", [2]),
        ("2x0 ", [2]),
        ("-2x0", [2]),
        ("2x0x1", [2]),
        ("999999999999x0", [2]),
        ("two", [2]),
        ("\u0662x0", [2]),
        (None, [2]),
    ],
)
def test_anything_else_is_a_sentence(text: str, counts: list[int]):
    with pytest.raises(CanaryError, match="order"):
        order.decode(text, counts)
