"""The terms of a run, for tests that have no run."""

import jax.numpy as jnp

from canary.types import Terms


def make_terms(limit: float, epsilon: float, updates: int = 10, iteration: int = 0) -> Terms:
    return Terms(
        jnp.asarray(limit), jnp.asarray(epsilon), jnp.asarray(updates), jnp.asarray(iteration)
    )
