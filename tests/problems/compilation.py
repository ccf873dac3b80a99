"""Quick compilation, for tests that run a program only a few times: half the time to compile it."""

from collections.abc import Iterator
from contextlib import contextmanager

import jax


@contextmanager
def quick_compilation() -> Iterator[None]:
    before = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", True)
    try:
        yield
    finally:
        jax.config.update("jax_disable_most_optimizations", before)
