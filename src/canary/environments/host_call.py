"""Functions of the host that compiled programs call: one call for a whole batch of lanes.

A call has a batching rule: nested vmaps become one call. On a CPU it is by name (`host.frames`), so
that JAX keeps the compiled program for later processes, and the function reads and writes the
program's own memory. Elsewhere it is a callback, and the program is compiled in every process.
"""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jaxtyping import Array

from canary.host.frames import handler


class HostFunction:
    """A function of batches of rows, under a name that no other one has; made once, when its
    module is imported."""

    def __init__(self, name: str, function: Callable[..., np.ndarray]):
        self._name, self._function = f"canary_{name}", function
        self._handler = handler(function)  # XLA has its address only, so it is kept here
        jax.ffi.register_ffi_target(
            self._name, jax.ffi.pycapsule(self._handler), platform="cpu", api_version=1
        )

    def __call__(self, result: jax.ShapeDtypeStruct, *arguments: Any) -> Array:
        """What it returns for one row, inside a program."""
        if jax.default_backend() == "cpu":
            call = jax.ffi.ffi_call(self._name, result, vmap_method="broadcast_all")
            return call(*map(jax.numpy.asarray, arguments))
        return jax.pure_callback(
            lambda *given: self._function(*map(np.asarray, given)),
            result,
            *arguments,
            vmap_method="broadcast_all",
        )
