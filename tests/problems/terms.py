"""The terms of a run, for tests that have no run."""

import jax.numpy as jnp

from canary.config.config import RunConfig
from canary.types import Terms


def make_terms(limit: float, epsilon: float, updates: int = 10, iteration: int = 0) -> Terms:
    return Terms(
        jnp.asarray(limit), jnp.asarray(epsilon), jnp.asarray(updates), jnp.asarray(iteration)
    )


def terms_of(config: RunConfig) -> Terms:
    """As the runner makes them, at the start of the run."""
    constraint = config.constraint
    return Terms(
        jnp.float32(constraint.limit), jnp.float32(constraint.share),
        jnp.int32(config.training.updates), jnp.int32(0),
    )  # fmt: skip
