"""What the trust-region engine hands to whom: units, keys, and when it reports."""

import jax
import jax.numpy as jnp
import numpy as np

from canary.algorithms.base import EstimationConfig, Task
from canary.algorithms.critics import CriticConfig, CriticModel
from canary.algorithms.trust_region import RiskConstraint, RiskEstimate, trust_region_algorithm
from canary.algorithms.trust_region_step import TrustRegionConfig
from canary.environments.protocol import Discrete
from canary.numerics.moments import empty_window
from canary.numerics.tiers import Tier
from problems.rollouts import make_rollout
from problems.terms import make_terms

STEPS, LANES = 20, 32
TASK = Task(input_size=3, action_space=Discrete(2))
NOTHING = jnp.zeros((0, STEPS, LANES))
NO_MODEL = CriticModel(
    lambda key, size: None, lambda state, x: NOTHING, lambda state, *rest: (state, {})
)


def small_rollout():
    shape, rng = (STEPS, LANES), np.random.default_rng(0)
    return make_rollout(
        time=STEPS, env=LANES, inputs=jnp.asarray(rng.normal(size=(*shape, 3)), jnp.float32),
        action=jnp.asarray(rng.integers(0, 2, shape)), reward=jnp.asarray(rng.normal(size=shape), jnp.float32),
    )  # fmt: skip


def one_update(*, model=NO_MODEL, warmup=0, length=1.0, **region):
    """An update under a constraint of value 1 whose signal is noise."""
    noise = np.random.default_rng(1).normal(size=(1, STEPS, LANES)).astype(np.float32)

    def estimate(evidence):
        return RiskEstimate(
            jnp.asarray(noise), jnp.zeros_like(noise), lambda z: z + 1, jnp.array(length), {},
            jnp.ones((STEPS, LANES)),
        )  # fmt: skip

    algorithm = trust_region_algorithm(
        RiskConstraint(critics=1, estimate=estimate, model=model), TASK,
        EstimationConfig(hidden=(4,), warmup_episodes=warmup), TrustRegionConfig(**region),
        CriticConfig(epochs=3, minibatches=2),
    )  # fmt: skip
    learner, window = algorithm.init(jax.random.key(0)), empty_window(STEPS * LANES)
    update = jax.jit(algorithm.update)
    return update(learner, small_rollout(), window, make_terms(1.0, 0.1), jax.random.key(1))[1]


def test_units_of_the_surrogates():
    """A step that changes an episode of many steps by enough changes one step by too little."""
    tiers = [
        one_update(length=1e5, reading=reading)["tier"] for reading in ("equations", "authors")
    ]
    assert tiers == [Tier.NOMINAL, Tier.BOUND_RESTORATION]


def test_policy_rests_until_enough_episodes_ended():
    assert one_update(warmup=1)["tier"] == Tier.NO_STEP
