"""Every algorithm solves every probe, and finds its own known optimum between reward and risk."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from canary.algorithms import ALGORITHMS
from canary.algorithms.base import EstimationConfig, Task
from canary.algorithms.canary import aim
from canary.algorithms.clipped import ClippedConfig
from canary.algorithms.critics import CriticConfig
from canary.algorithms.cvar_cpo import QuantileConfig
from canary.networks import critic_values
from canary.rollout import CostAccount
from canary.training import Trainer, init_training, train_chunk
from problems.probe_environments import Kind, Probe
from problems.terms import make_terms

LIMIT, EPSILON, DISCOUNT, UPDATES = 1.0, 0.3, 0.9, 60
ESTIMATION = EstimationConfig(hidden=(16, 16), reward_discount=DISCOUNT)
CLIPPED = ["canary", "ppo", "cppo", "ppo-lagrangian"]
# The price starts high, and a policy that runs ahead of it overshoots.
PRICED = {"rate": 0.003, "updates": 150}


def slow(*values):
    """Right in seconds too, but every program takes ten seconds to compile."""
    return pytest.param(*values, marks=pytest.mark.slow)


METHODS = [
    "canary", "cantelli-cpo", "cvar-cpo", slow("ppo"), slow("cppo"), slow("ppo-lagrangian"), slow("cpo"),
]  # fmt: skip


def settings_of(name, **options):
    if name in CLIPPED:
        rate = options.pop("rate", 0.01)
        clipped = ClippedConfig(learning_rate=rate, minibatch_size=64)
        return ALGORITHMS[name](estimation=ESTIMATION, clipped=clipped, **options)
    critic = CriticConfig(learning_rate=0.01, epochs=20)
    if name == "cvar-cpo":
        options["distribution"] = QuantileConfig(hidden=(16,), quantiles=16, samples=8)
    return ALGORITHMS[name](estimation=ESTIMATION, critic=critic, **options)


@cache
def program(name, constraint="chance", updates=UPDATES, **options):
    """Train on the probe of a given kind; the state at the end and the episodes of every update."""

    @jax.jit
    def train(kind):
        probe = Probe(kind)
        task = Task(
            input_size=probe.observation_size + CostAccount.SIZE,
            action_space=probe.action_space,
            horizon=probe.horizon,
            constraint=constraint,
        )
        trainer = Trainer(
            environment=probe,
            algorithm=settings_of(name, **options).make(task),
            cost_discount=1.0,
            clock=None,
            environments=16,
            rollout_length=16,
            stagger=False,
        )
        terms = make_terms(LIMIT, 1.0 if constraint == "mean" else EPSILON, updates)
        return train_chunk(trainer, init_training(trainer, terms, 7), updates, updates)

    return train


@cache
def trained(name, kind, **options):
    options |= PRICED if name in ("canary", "ppo-lagrangian") else {}
    return program(name, **options)(jnp.asarray(int(kind)))


def values(name, kind, *observations):
    """What the reward critic says of inputs (s, g, y) with nothing spent."""
    state, _ = trained(name, kind)
    inputs = jnp.asarray([[*observation, 1.0, 0.0] for observation in observations])
    return np.asarray(critic_values(state.learner.critics.networks, inputs))[0]


@pytest.mark.parametrize("name", METHODS)
def test_values_constant_observed_and_discounted(name):
    np.testing.assert_allclose(values(name, Kind.CONSTANT, (0, 0)), [1], atol=0.05)
    np.testing.assert_allclose(values(name, Kind.OBSERVATION, (1, 0), (-1, 0)), [1, -1], atol=0.1)
    np.testing.assert_allclose(
        values(name, Kind.DISCOUNTING, (0, 0), (0, 1)), [DISCOUNT, 1], atol=0.05
    )


@pytest.mark.parametrize("name", METHODS)
def test_discrete_action_follows_the_observation(name):
    _, (_, episodes) = trained(name, Kind.ACTION)
    assert np.asarray(episodes.reward)[0].mean() < 0.7
    assert np.asarray(episodes.reward)[-5:].mean() > 0.95


def test_cost_critics_learn_the_cost_to_come_and_its_square():
    """E[C] of the steps left is 2, then 1; E[C^2] - y^2 is 4, then 4 - 1."""
    state, _ = trained("cantelli-cpo", Kind.COSTLY)
    inputs = jnp.array([[0.0, 0.0, 1.0, 0.0], [0.0, 1.0, 1.0, 1.0]])
    _, cost, square = critic_values(state.learner.critics.networks, inputs)
    np.testing.assert_allclose(cost, [2, 1], atol=0.05)
    np.testing.assert_allclose(square, [4, 3], atol=0.1)


# The probability p of the costly action at the optimum: C is 2 with probability p, else 0.
CANTELLI = (1 - np.sqrt(1 - EPSILON)) / 2  # (1/eps - 1) 4 p (1 - p) = (1 - 2 p)^2
OPTIMA = [
    # A cost of 0 or 2 is shaped to 0 or 1: the bound is p.
    ("canary", {}, aim(1.0) * EPSILON),
    ("cantelli-cpo", {}, CANTELLI),
    slow("ppo", {}, 1.0),
    slow("cpo", {}, EPSILON),  # P(C > 1) = p
    ("ppo-lagrangian", {}, EPSILON),
    slow("ppo-lagrangian", {"constraint": "mean"}, 0.5),
    slow("ppo-lagrangian", {"constraint": "cvar"}, EPSILON / 2),
    ("cvar-cpo", {}, EPSILON / 2),  # the mean of the worst 30% is 2 p / 0.3
    ("cppo", {"penalty": "post"}, EPSILON / 2),
    slow("cppo", {}, 1.0),  # the published penalty steers nothing
]


@pytest.mark.parametrize(("name", "options", "optimum"), OPTIMA)
def test_trade_off_settles_at_the_known_optimum(name, options, optimum):
    _, (_, episodes) = trained(name, Kind.TRADE_OFF, **options)
    assert abs(np.asarray(episodes.reward)[-20:].mean() - optimum) < 0.05
