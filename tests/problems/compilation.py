"""How programs are compiled, where it matters: tests compile quickly (tests/conftest.py)."""

from collections.abc import Iterator
from contextlib import contextmanager

import jax

# Two ways to compile the programs of the digests, whatever the flags of the process are. The
# first digests were made with fusion emitters; without them compilation takes a third of the time.
_PLAIN = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}
COMPILERS = {
    "digests": _PLAIN | {"xla_cpu_use_fusion_emitters": True},
    "quick": _PLAIN | {"xla_cpu_use_fusion_emitters": False},
}


@contextmanager
def optimised() -> Iterator[None]:
    """Programs as users run them."""
    before = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", False)
    try:
        yield
    finally:
        jax.config.update("jax_disable_most_optimizations", before)
