"""What the shared update remembers, reports, and hands to whom."""

from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from canary.algorithms import gradient_signal, trust_region_update
from canary.algorithms.base import EstimationConfig, Task
from canary.algorithms.canary import CanaryConfig, make_canary
from canary.algorithms.critics import CriticConfig, CriticModel
from canary.algorithms.gradient_signal import Signal
from canary.algorithms.step_report import Foresight
from canary.algorithms.trust_region_step import TrustRegionConfig
from canary.algorithms.trust_region_update import RiskConstraint, RiskEstimate, surrogate_scale
from canary.config.config import make_config
from canary.environments.protocol import Discrete
from canary.networks import critic_values
from canary.numerics.moments import empty_window
from canary.runs.seeds import make_trainer
from canary.training import init_training, train_iteration
from problems.rollouts import make_rollout
from problems.terms import make_terms, terms_of


@pytest.mark.parametrize(
    ("kind", "share", "expected"),
    [
        ("step", 0.5, 1),
        ("episode", 0.5, 40),
        ("signal", 0.5, 20),
        (
            "signal",
            3.0,
            40,
        ),  # noise can look like more than all signal: no more than the true units
        ("signal", 0.001, 1),  # nor less than one step's
        ("signal", -0.7, 1),
    ],
)
def test_units_of_the_surrogates(kind, share, expected):
    config = TrustRegionConfig(surrogate_scale=kind)
    signal = Signal(jnp.array(share), jnp.array(1.0))
    assert surrogate_scale(config, jnp.array(40.0), signal) == pytest.approx(expected)


# --- memory ---


def small_trainer(*overrides, **training):
    config = make_config(
        preset="paper",
        overrides=(
            "algo.hidden=[8]", "algo.warmup_episodes=0", "algo.window=5", "env.horizon=20",
            "algo.critic.epochs=2", "training.merge_capacity=0", *overrides,
        ),
        environments=4, rollout_length=50, total_steps=1200, **training,
    )  # fmt: skip
    trainer = make_trainer(config)
    state = jax.jit(lambda: init_training(trainer, terms_of(config), 0))()
    return state, jax.jit(lambda state: train_iteration(trainer, state))


def test_the_signal_is_averaged_over_updates_and_the_best_return_kept():
    state, advance = small_trainer()
    expected, best = gradient_signal.no_signal(), -np.inf
    for index in range(4):
        assert state.terms.iteration == index
        state, (metrics, ends) = advance(state)
        returns = np.asarray(ends.reward)[np.asarray(ends.ended & ends.valid)]
        assert len(returns) >= 5  # else the window would hold episodes of earlier batches as well
        best = max(best, returns.mean())
        np.testing.assert_allclose(state.learner.extra.best_return, best, rtol=1e-5)
        np.testing.assert_allclose(
            metrics["return_lost"] * best, best - returns.mean(), rtol=1e-4, atol=1e-6
        )
        expected = expected.averaged_with(metrics["signal_fraction"])
        np.testing.assert_allclose(
            state.learner.extra.signal.total, expected.total, rtol=1e-5, atol=1e-7
        )
        np.testing.assert_allclose(
            state.learner.extra.signal.weight, 1 - 0.95 ** (index + 1), rtol=1e-5
        )


@pytest.mark.parametrize("scale", ["episode", "step"])
def test_promise_and_outcome_are_of_the_same_step(scale):
    """The change that update k promised stands beside the change from the batch of update k to the
    next one."""
    state, advance = small_trainer(f"algo.surrogate_scale={scale}")
    rows = []
    for _ in range(5):
        state, (metrics, _) = advance(state)
        rows.append(
            jax.tree.map(float, metrics) | {"next": float(state.learner.extra.foresight.promise)}
        )
    assert np.isnan(rows[0]["bound_predicted_change"])
    assert np.isnan(rows[0]["bound_realised_change"])
    for before, after in pairwise(rows):
        assert after["bound_predicted_change"] == before["next"]
        assert after["bound_realised_change"] == pytest.approx(
            after["batch_bound"] - before["batch_bound"], abs=1e-4
        )
    # In episode units, whatever units the step was computed in, promise and surrogate agree on a
    # small step.
    # No episode ends early on this lake within 20 steps
    units = {"episode": 1.0, "step": 20.0}[scale]
    moved = [row for row in rows if row["accepted"]]
    assert moved
    for row in moved:
        assert row["next"] == pytest.approx(units * row["bound_surrogate_change"], rel=0.4, abs=0.2)


def test_a_batch_without_episodes_lets_promises_add_up():
    def numbers(*values):
        return [jnp.asarray(value, jnp.float32) for value in values]

    foresight, _ = Foresight.nothing().compare(*numbers(5.0, -1.0))
    foresight, metrics = foresight.compare(*numbers(jnp.nan, -2.0))
    assert float(metrics["bound_predicted_change"]) == -1
    assert np.isnan(metrics["bound_realised_change"])
    foresight, metrics = foresight.compare(*numbers(1.5, -4.0))
    # Two steps were taken since the last measurement
    assert float(metrics["bound_predicted_change"]) == -3
    assert float(metrics["bound_realised_change"]) == -3.5
    assert float(foresight.promise) == -4


def test_worst_case_is_logged_with_a_discounted_cost_only_and_the_violating_region_always():
    for overrides, logged in (
        (("algo.cost_discount=0.9",), True),
        ((), False),
        (("algo.dead_zone=0.5",), False),
    ):
        state, advance = small_trainer(*overrides)
        _, (metrics, _) = jax.eval_shape(advance, state)
        assert "provably_violating" in metrics
        assert ("worst_case_bound" in metrics) == ("worst_case_mean" in metrics) == logged


# --- what critics see, and learn from ---

STEPS, LANES, HORIZON = 20, 32, 4


def clock_rollout(key, inputs):
    """Episodes of four steps that look alike; the last step costs 1 and earns 1."""
    time = jnp.broadcast_to(jnp.arange(STEPS)[:, None] % HORIZON, (STEPS, LANES))
    last = time == HORIZON - 1
    seen = jnp.ones((STEPS, LANES, inputs))
    return make_rollout(
        time=STEPS, env=LANES, inputs=seen, next_inputs=seen, elapsed=time / HORIZON,
        next_elapsed=(time + 1) / HORIZON, action=jax.random.bernoulli(key, 0.5, (STEPS, LANES)).astype(int),
        reward=last.astype(float), cost=last.astype(float), terminated=last,
    )  # fmt: skip


@pytest.mark.parametrize("time_feature", [False, True])
def test_only_a_critic_that_knows_the_time_learns_a_value_that_depends_on_it(time_feature):
    """All states look alike, and the cost still to come is 1 until the end; the reward is
    discounted by 0.5."""
    estimation = EstimationConfig(hidden=(16,), reward_discount=0.5)
    critic = CriticConfig(time_feature=time_feature, learning_rate=0.03, epochs=20)
    task = Task(input_size=3, action_space=Discrete(2))
    algorithm = make_canary(CanaryConfig(estimation=estimation, critic=critic), task)
    update = jax.jit(algorithm.update)
    learner = algorithm.init(jax.random.key(0))
    assert learner.critics.networks.weights[0].shape[1] == 3 + time_feature
    assert learner.policy.network.weights[0].shape[0] == 3  # the policy never sees the clock
    for index in range(60):
        key = jax.random.key(index)
        terms = make_terms(1.0, 0.1, updates=60, iteration=index)
        learner, _ = update(learner, clock_rollout(key, 3), empty_window(STEPS * LANES), terms, key)
    clock = jnp.arange(HORIZON)[:, None] / HORIZON
    seen = jnp.concatenate([jnp.ones((HORIZON, 3)), *([clock] if time_feature else [])], -1)
    error = np.abs(
        critic_values(learner.critics.networks, seen)[0] - 0.5 ** np.arange(3, -1, -1)
    ).max()
    assert error < 0.1 if time_feature else error > 0.3


def test_no_key_is_used_twice(monkeypatch):
    """The key of the scalar critics' minibatches and that of the other critic, and all that is
    drawn from either."""
    keys = []

    def noted(name):
        def note(key):
            keys.append((name, np.asarray(jax.random.key_data(key))))

        return note

    def fit_critics(critics, optimiser, config, inputs, targets, terms, key):
        jax.debug.callback(noted("critics"), key)
        for epoch in jax.random.split(key, config.epochs):
            jax.debug.callback(noted("permutation"), epoch)
        return critics, jnp.zeros(targets.shape[0])

    def fit_model(state, inputs, rollout, after, terms, key):
        jax.debug.callback(noted("model"), key)
        for part in jax.random.split(key):
            jax.debug.callback(noted("model's own"), part)
        return state, {}

    def estimate(evidence):
        zero = jnp.zeros((1, *evidence.rollout.cost.shape))
        return RiskEstimate(
            zero,
            zero,
            lambda z: z - 1,
            jnp.array(1.0),
            {"batch_bound": jnp.array(0.0)},
            zero[0] + 1,
        )

    monkeypatch.setattr(trust_region_update, "fit_critics", fit_critics)
    nothing = jnp.zeros((0, STEPS, LANES))
    model = CriticModel(lambda key, size: None, lambda state, x: nothing, fit_model)
    risk = RiskConstraint(critics=1, estimate=estimate, model=model)
    algorithm = trust_region_update.trust_region_algorithm(
        risk, Task(input_size=3, action_space=Discrete(2)), EstimationConfig(hidden=(4,)),
        TrustRegionConfig(), CriticConfig(epochs=3, minibatches=2),
    )  # fmt: skip
    learner = algorithm.init(jax.random.key(0))
    rollout, window = clock_rollout(jax.random.key(2), 3), empty_window(STEPS * LANES)
    jax.jit(algorithm.update)(learner, rollout, window, make_terms(1.0, 0.1), jax.random.key(1))
    jax.effects_barrier()
    assert {name for name, _ in keys} == {"critics", "permutation", "model", "model's own"}
    assert len({tuple(key.tolist()) for _, key in keys}) == len(keys) == 1 + 3 + 1 + 2
