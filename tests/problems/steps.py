"""One step of the trust-region method, for tests that have no update around it."""

import jax.numpy as jnp

from canary.algorithms.surrogates import Surrogates
from canary.algorithms.trust_region_step import (
    Aim,
    StepResult,
    TrustRegionConfig,
    trust_region_step,
)
from canary.networks import Policy


def take_one_step(
    surrogates: Surrogates, config: TrustRegionConfig, *, radius=None, ready=True, lost=0.0
) -> tuple[Policy, StepResult]:
    """With the radius of the start of a run, unless another is given."""
    radius = jnp.asarray(config.target_kl if radius is None else radius)
    aim = Aim(radius, config.share(jnp.asarray(lost)))
    return trust_region_step(surrogates, aim, jnp.asarray(ready), config)
