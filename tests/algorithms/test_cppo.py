"""CPPO: what each penalty's policy gradient is, exactly; and the controller of the multiplier."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from canary.algorithms.base import EstimationConfig
from canary.algorithms.cppo import Controller, CPPOConfig, control, penalised_objective
from problems.breach_truth import Law
from problems.probe_mdps import (
    EPSILON,
    LIMIT,
    ROOT,
    TABLE,
    Truth,
    batch_of,
    difference_quotients,
    policy_gradient,
    population,
)
from problems.terms import make_terms

MULTIPLIER = 2.5


@pytest.fixture(scope="module", params=[0.9])
def case(request):
    """The population with exact cost values; the reward value never limits the penalty."""
    gamma = request.param
    with jax.enable_x64(True):
        rollout, nodes, afters = population(gamma)
        truth = Truth(TABLE, gamma)
        here, after = (
            jnp.asarray([truth.remaining(node)[0] for node in some])[:, None]
            for some in (nodes, afters)
        )
        large = jnp.full_like(here, 1e9)
    return SimpleNamespace(
        gamma=gamma,
        rollout=rollout,
        values=(jnp.stack([large, here]), jnp.stack([large, after])),
    )


def objective(case, penalty, **options):
    """The objective of a batch whose reward advantage is zero: minus the penalty."""
    estimation = EstimationConfig(cost_discount=case.gamma, gae_lambda=1.0, window=1)
    config = CPPOConfig(estimation=estimation, penalty=penalty, **options)
    start, nothing = jnp.asarray(MULTIPLIER), jnp.zeros_like(case.rollout.cost)
    batch = batch_of(case.rollout, *case.values, reward=(nothing, nothing + 7))
    memory = Controller(start, start)
    return penalised_objective(config)(batch, make_terms(LIMIT, EPSILON), memory)


def test_state_penalty_has_no_expected_gradient(case):
    with jax.enable_x64(True):
        found = objective(case, "state")
        gradient = policy_gradient(case.rollout, found.advantage)
    assert np.asarray(found.advantage).min() < -0.1  # there is a penalty
    np.testing.assert_allclose(gradient, 0, atol=1e-9)


def test_post_penalty_is_the_gradient_of_the_tail_excess(case):
    """With lambda = 1: - multiplier * d/dtheta E[(C - eta)+] / epsilon, in raw cost units."""
    with jax.enable_x64(True):
        found = objective(case, "post")
        gradient = policy_gradient(case.rollout, found.advantage)
    eta = float(found.metrics["eta"]) / LIMIT

    def tail(table):
        return sum(
            p * max(cost - eta, 0) for cost, p in Law(table, case.gamma).to_come(ROOT).items()
        )

    truth = -MULTIPLIER / EPSILON * LIMIT * difference_quotients(tail)
    assert np.abs(truth).max() > 0.1
    np.testing.assert_allclose(gradient, truth, rtol=1e-5, atol=1e-7)


def test_penalty_never_exceeds_its_share_of_the_reward_value(case):
    with jax.enable_x64(True):
        small = SimpleNamespace(**vars(case))
        small.values = tuple(values.at[0].set(-0.01) for values in case.values)
        for penalty in ("state", "post"):
            found = np.abs(np.asarray(objective(small, penalty, cvar_clip_ratio=3.0).advantage))
            assert found.max() == pytest.approx(0.03)


# --- the controller ---

GAINS = CPPOConfig(multiplier_step=0.5, proportional_gain=10.0)
YES, NO = jnp.array(True), jnp.array(False)


def controlled(integral, error, ready=YES, config=GAINS):
    memory = control(
        Controller(jnp.asarray(integral), jnp.asarray(7.0)), jnp.asarray(error), ready, config
    )
    return float(memory.integral), float(memory.multiplier)


def test_controller_adds_integral_and_proportional_parts():
    assert controlled(4.0, 2.0) == (5.0, 25.0)
    assert controlled(4.0, -0.25) == (3.875, 1.375)


def test_controller_stays_between_zero_and_the_cap_without_winding_up():
    assert controlled(3999.5, 1000.0) == (4000.0, 4000.0)
    assert controlled(0.5, -1000.0) == (0.0, 0.0)
    assert controlled(0.0, 0.5) == (0.25, 5.25)  # up again at once


def test_controller_waits_for_episodes_and_ignores_what_is_no_number():
    assert controlled(4.0, 2.0, NO) == (4.0, 7.0)
    assert controlled(4.0, np.nan) == (4.0, 7.0)
