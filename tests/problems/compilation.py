"""How programs are compiled, where it matters: tests compile quickly (tests/conftest.py)."""

from collections.abc import Iterator
from contextlib import contextmanager

import jax

# What the recorded digests were compiled with, whatever the flags of the process are.
RECORDED = {
    "xla_backend_optimization_level": 0,
    "xla_llvm_disable_expensive_passes": True,
    "xla_cpu_use_fusion_emitters": True,
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
