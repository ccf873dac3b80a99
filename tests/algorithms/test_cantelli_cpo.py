"""The paper's Cantelli constraint against the truth, on a process whose episodes can be listed."""

from dataclasses import replace
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from canary.algorithms.base import EstimationConfig
from canary.algorithms.cantelli_cpo import CantelliCPOConfig, cantelli_constraint
from canary.algorithms.inputs import Inputs
from canary.algorithms.trust_region_step import Surrogates, TrustRegionConfig, trust_region_step
from problems.probe_mdps import (
    EPSILON,
    LIMIT,
    ROOT,
    TABLE,
    TablePolicy,
    Truth,
    batch_of,
    copies,
    difference_quotients,
    estimated,
    population,
    surrogate_gradients,
)
from problems.terms import make_terms

TERMS = make_terms(LIMIT, EPSILON)


def constraint_at(gamma):
    estimation = EstimationConfig(cost_discount=gamma, window=1)
    return cantelli_constraint(CantelliCPOConfig(estimation=estimation))


def columns(where, *functions):
    return jnp.asarray([[function(node) for node in where] for function in functions])[..., None]


@pytest.fixture(scope="module", params=[1.0, 0.9])
def exact(request):
    """The population, exact critics around every step, and the constraint estimated from them."""
    gamma = request.param
    with jax.enable_x64(True):
        rollout, nodes, afters = population(gamma)
        truth = Truth(TABLE, gamma)
        here, after = (
            columns(some, lambda node: truth.remaining(node)[0], truth.augmented)
            for some in (nodes, afters)
        )
        found = estimated(constraint_at(gamma), batch_of(rollout, here, after), TERMS)
    about = {"gamma": gamma, "nodes": nodes, "critics": here, "truth": truth}
    return SimpleNamespace(**about, **vars(found), inputs=Inputs(rollout.inputs[:, 0]))


def test_a_folded_critic_gives_the_same_constraint(exact):
    """The authors' critics have other units and another sum; exact ones give the same numbers."""
    beta = 1 / EPSILON - 1

    def folded(values):
        return jnp.stack([LIMIT * values[0], LIMIT**2 * (beta * values[1] + 2 * values[0])])

    with jax.enable_x64(True):
        batch = replace(
            exact.batch,
            values=folded(exact.batch.values),
            next_values=folded(exact.batch.next_values),
        )
        config = CantelliCPOConfig(
            estimation=EstimationConfig(cost_discount=exact.gamma, window=1),
            trust_region=TrustRegionConfig(reading="authors"),
        )
        estimate = cantelli_constraint(config)(batch, TERMS)
        np.testing.assert_allclose(estimate.advantages, exact.estimate.advantages, atol=1e-9)
        np.testing.assert_allclose(estimate.targets, folded(exact.estimate.targets), atol=1e-9)


def test_values_are_those_of_the_population(exact):
    with jax.enable_x64(True):
        np.testing.assert_allclose(
            exact.estimate.bound(jnp.zeros(2)), exact.truth.constraints(), rtol=1e-12
        )
        lengths = np.asarray(exact.rollout.episodes.length)[
            np.asarray(exact.rollout.episodes.ended)
        ]
        np.testing.assert_allclose(exact.length, lengths.mean(), rtol=1e-12)
    _, square = exact.truth.remaining(ROOT)
    assert exact.estimate.metrics["provably_violating"] == 0
    # E of the sum of c~ is E[C^2]
    np.testing.assert_allclose(exact.truth.augmented(ROOT), square, rtol=1e-12)


def test_gradients_equal_finite_differences_of_the_exact_bound(exact):
    """In episode units the ratio to the truth is 1; the per-step mean lacks the episode length."""
    truth = difference_quotients(lambda table: Truth(table, exact.gamma).constraints())
    with jax.enable_x64(True):
        found = surrogate_gradients(exact.rollout, exact.samples, exact.estimate, exact.length)
        per_step = surrogate_gradients(exact.rollout, exact.samples, exact.estimate, 1.0)
    assert np.abs(truth).max() > 0.1
    np.testing.assert_allclose(found, truth, rtol=1e-6, atol=1e-8)
    large = np.abs(truth) > 0.02
    np.testing.assert_allclose(
        (truth / np.where(large, per_step, 1))[large], float(exact.length), rtol=1e-6
    )


def test_a_small_step_promises_what_the_exact_bound_does(exact):
    """The change that the surrogates promise is the change of (B, mu)."""
    config = TrustRegionConfig(cg_iterations=30, cg_tolerance=1e-10, target_kl=1e-9)

    @jax.jit
    def take():
        start = TablePolicy(jnp.asarray(TABLE))
        old, estimate = exact.inputs.evaluate(start), exact.estimate
        surrogates = Surrogates(
            start, exact.inputs, old, exact.samples, estimate.bound, exact.length
        )
        return trust_region_step(surrogates, jnp.array(True), config)

    with jax.enable_x64(True):
        policy, step = take()
        new = Truth(np.asarray(policy.table), exact.gamma)
    change = new.constraints() - exact.truth.constraints()
    assert bool(step.found.accepted)
    assert change[0] < 0
    promised = step.found.levels.constraints - step.before.constraints
    np.testing.assert_allclose(promised, change, rtol=1e-3)


def test_exact_critics_learn_themselves(exact):
    """Over the copies of a node the mean target of each critic is its value: a fixed point."""
    targets, critics = np.asarray(exact.estimate.targets), np.asarray(exact.critics)
    for here in copies(exact.nodes).values():
        np.testing.assert_allclose(targets[:, here].mean(1), critics[:, here[0]], atol=1e-9)
