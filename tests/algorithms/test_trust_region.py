"""What the trust-region engine hands to whom: units, keys, and when it reports."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from canary.algorithms import trust_region
from canary.algorithms.base import EstimationConfig, Task
from canary.algorithms.cantelli_cpo import CantelliCPOConfig
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


@pytest.mark.parametrize("cost_discount", [1.0, 0.9])
def test_the_theorems_alpha_is_logged_with_a_discounted_cost_only(cost_discount):
    estimation = EstimationConfig(hidden=(4,), cost_discount=cost_discount)
    algorithm = CantelliCPOConfig(estimation=estimation).make(TASK)

    def update(key):
        window = empty_window(STEPS * LANES)
        return algorithm.update(
            algorithm.init(key), small_rollout(), window, make_terms(1.0, 0.1), key
        )

    _, metrics = jax.eval_shape(update, jax.random.key(0))
    assert ("largest_advantage" in metrics) == (cost_discount < 1)


def test_no_key_is_used_twice(monkeypatch):
    """The key of the scalar critics' minibatches and that of the other critic, and all that is
    drawn from either."""
    keys = []

    def note(name, key):
        jax.debug.callback(lambda data: keys.append((name, tuple(data.tolist()))), jax.random.key_data(key))  # fmt: skip

    def fit_critics(critics, optimiser, config, inputs, targets, terms, key, **clip):
        note("critics", key)
        for epoch in jax.random.split(key, config.epochs):
            note("permutation", epoch)
        return critics, jnp.zeros(targets.shape[0])

    def fit_model(state, inputs, rollout, after, terms, key):
        note("model", key)
        for part in jax.random.split(key):
            note("model's own", part)
        return state, {}

    monkeypatch.setattr(trust_region, "fit_critics", fit_critics)
    one_update(model=CriticModel(NO_MODEL.init, NO_MODEL.predict, fit_model))
    jax.effects_barrier()
    assert {name for name, _ in keys} == {"critics", "permutation", "model", "model's own"}
    assert len({key for _, key in keys}) == len(keys) == 1 + 3 + 1 + 2
