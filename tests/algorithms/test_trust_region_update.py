"""What the shared update remembers, and the units that it gives to a constraint."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from canary.algorithms.trust_region_step import TrustRegionConfig
from canary.algorithms.trust_region_update import SIGNAL_MEMORY, surrogate_scale
from canary.experiments.config import make_config
from canary.experiments.runner import make_trainer
from canary.training import init_training, train_iteration
from problems.compilation import quick_compilation


@pytest.fixture(scope="module", autouse=True)
def quick():
    with quick_compilation():
        yield


@pytest.mark.parametrize(
    ("kind", "signal", "expected"),
    [
        ("step", 0.5, 1),
        ("episode", 0.5, 40),
        ("signal", 0.5, 20),
        (
            "signal",
            3.0,
            40,
        ),  # a cosine of noisy gradients can exceed 1 in another metric: no more than the true units
        ("signal", 0.001, 1),  # nor less than one step's
        ("signal", -0.7, 1),
    ],
)
def test_units_of_the_surrogates(kind, signal, expected):
    config = TrustRegionConfig(surrogate_scale=kind)
    assert surrogate_scale(config, jnp.array(40.0), jnp.array(signal)) == pytest.approx(expected)


@pytest.mark.parametrize("between", ["updates", "environments"])
def test_updates_are_counted_the_signal_is_averaged_and_the_best_return_kept(between: str):
    config = make_config(
        overrides=(
            "algo.hidden=[8]", "algo.warmup_episodes=0", "algo.window=5", "env.horizon=20",
            "training.merge_capacity=0", f"algo.signal_between={between}",
        ),
        environments=4, rollout_length=50, total_steps=1200,
    )  # fmt: skip
    trainer = make_trainer(config)
    advance = jax.jit(lambda state: train_iteration(trainer, state))
    state, average, best = jax.jit(lambda: init_training(trainer, 0, 0))(), 0.0, -np.inf
    for index in range(4):
        assert state.learner.extra.updates == index
        state, (metrics, ends) = advance(state)
        returns = np.asarray(ends.reward)[np.asarray(ends.ended & ends.valid)]
        assert len(returns) >= 5  # else the window would hold episodes of earlier batches as well
        best = max(best, returns.mean())
        np.testing.assert_allclose(state.learner.extra.best_return, best, rtol=1e-5)
        np.testing.assert_allclose(metrics["return_lost"] * best, best - returns.mean(), rtol=1e-4, atol=1e-6)
        average = SIGNAL_MEMORY * average + (1 - SIGNAL_MEMORY) * np.nan_to_num(
            float(metrics["signal_fraction"])
        )
        np.testing.assert_allclose(state.learner.extra.signal, average, rtol=1e-5, atol=1e-7)
    assert average != 0
