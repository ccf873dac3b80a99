"""The trust-region engine: units of the surrogates, and when the policy moves."""

import jax
import jax.numpy as jnp
import numpy as np

from canary.algorithms.base import EstimationConfig, Task
from canary.algorithms.critics import CriticConfig
from canary.algorithms.trust_region import (
    RiskConstraint,
    RiskEstimate,
    TrustRegionSettings,
    trust_region_algorithm,
)
from canary.algorithms.trust_region_step import TrustRegionConfig
from canary.constraints import Tier
from canary.environments.protocol import Discrete
from canary.numerics.costs import EpisodeWindow
from problems.rollouts import make_rollout
from problems.terms import make_terms

STEPS, LANES = 20, 32
TASK = Task(input_size=3, action_space=Discrete(2))


def small_rollout():
    shape, rng = (STEPS, LANES), np.random.default_rng(0)
    return make_rollout(
        time=STEPS, env=LANES, inputs=jnp.asarray(rng.normal(size=(*shape, 3)), jnp.float32),
        action=jnp.asarray(rng.integers(0, 2, shape)), reward=jnp.asarray(rng.normal(size=shape), jnp.float32),
    )  # fmt: skip


def one_update(*, warmup=0, length=1.0, **region):
    """An update under a constraint of value 1 whose signal is noise."""
    noise = np.random.default_rng(1).normal(size=(1, STEPS, LANES)).astype(np.float32)

    def estimate(batch, terms):
        return RiskEstimate(jnp.asarray(noise), jnp.zeros_like(noise), lambda z: z + 1)

    settings = TrustRegionSettings(
        estimation=EstimationConfig(hidden=(4,), warmup_episodes=warmup),
        trust_region=TrustRegionConfig(**region),
        critic=CriticConfig(epochs=3, minibatches=2),
    )
    risk = RiskConstraint(critics=1, estimate=estimate)
    algorithm = trust_region_algorithm(risk, TASK, settings)
    learner, numbers = algorithm.init(jax.random.key(0)), jnp.full(STEPS * LANES, length)
    window = EpisodeWindow(0 * numbers, numbers, numbers, jnp.array(1), jnp.array(1))
    update = jax.jit(algorithm.update)
    return update(learner, small_rollout(), window, make_terms(1.0, 0.1), jax.random.key(1))[1]


def test_units_of_the_surrogates():
    """A step that changes an episode of many steps by enough changes one step by too little."""
    tiers = [
        one_update(length=1e5, reading=reading)["tier"] for reading in ("equations", "authors")
    ]
    assert tiers == [Tier.NOMINAL, Tier.BOUND_RESTORATION]


def test_policy_rests_until_enough_episodes_ended():
    assert one_update(warmup=2)["tier"] == Tier.NO_STEP
