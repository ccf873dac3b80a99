"""A call of the host from inside a program: one for a whole batch of lanes.

The callback has a batching rule, as that of `physics.native`: nested vmaps become one call.
"""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.experimental.buffer_callback import buffer_callback
from jaxtyping import Array


def host_call(
    function: Callable[..., np.ndarray], result: jax.ShapeDtypeStruct, *arguments: Array | int
) -> Array:
    """A host function of batches of rows, inside a program."""
    if jax.default_backend() != "cpu":
        return jax.pure_callback(
            lambda *given: function(*map(np.asarray, given)),
            result,
            *arguments,
            vmap_method="broadcast_all",
        )

    def fill(
        context: Any, out: Any, *given: Any
    ) -> None:  # reads and writes the program's own memory
        del context
        np.asarray(out)[...] = function(*map(np.asarray, given))

    return buffer_callback(fill, result, vmap_method="broadcast_all")(*arguments)
