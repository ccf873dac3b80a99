"""Trees of arrays, compared."""

from functools import partial
from typing import Any

import jax
import numpy as np


def plain(tree: Any) -> Any:
    """The tree with numpy arrays as its leaves; keys as their numbers."""

    def leaf_of(leaf: Any) -> np.ndarray:
        is_key = jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)
        return np.asarray(jax.random.key_data(leaf) if is_key else leaf)

    return jax.tree.map(leaf_of, tree)


def same(one: Any, other: Any) -> bool:
    return all(jax.tree.leaves(jax.tree.map(np.array_equal, one, other)))


def assert_same(actual: Any, expected: Any) -> None:
    assert jax.tree.structure(actual) == jax.tree.structure(expected)
    for one, other in zip(jax.tree.leaves(actual), jax.tree.leaves(expected), strict=True):
        assert (one.shape, one.dtype) == (other.shape, other.dtype)
        assert plain(one).tobytes() == plain(other).tobytes()


def assert_close(actual: Any, expected: Any, *, rtol: float = 0.0, atol: float = 0.0) -> None:
    jax.tree.map(partial(np.testing.assert_allclose, rtol=rtol, atol=atol), actual, expected)
