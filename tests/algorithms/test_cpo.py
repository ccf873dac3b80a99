"""CPO: the indicator is the breach, its gradient is exact, its step that of the dual."""

from types import SimpleNamespace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from canary.algorithms.advantages import breach_indicator
from canary.algorithms.base import EstimationConfig, Task
from canary.algorithms.cpo import CPOConfig, expectation_constraint
from canary.algorithms.trust_region_step import TrustRegionConfig
from canary.constraints import Tier
from canary.environments.protocol import Discrete
from canary.numerics.trust_region import solve
from problems.breach_truth import Law
from problems.probe_mdps import (
    EPSILON,
    LIMIT,
    ROOT,
    TABLE,
    Truth,
    batch_of,
    difference_quotients,
    estimated,
    population,
    surrogate_gradients,
)
from problems.rollouts import one_lane
from problems.terms import make_terms


@pytest.mark.parametrize(("reading", "seen"), [("equations", 5), ("authors", 3)])
def test_in_the_authors_reading_no_network_sees_the_spent_cost(reading, seen):
    config = CPOConfig(trust_region=TrustRegionConfig(reading=reading))
    learner = config.make(Task(input_size=5, action_space=Discrete(2))).init(jax.random.key(0))
    assert learner.policy.network.weights[0].shape[0] == seen
    assert learner.critics.networks.weights[0].shape[1] == seen


# --- the indicator ---

amounts = st.lists(st.integers(0, 12).map(lambda n: np.float32(n / 10)), min_size=1, max_size=12)


def played(costs):
    """One episode: what a rollout says of it. Spent costs are float32 sums, step by step."""
    spent = np.zeros(len(costs) + 1, np.float32)
    for step, cost in enumerate(costs):
        spent[step + 1] = spent[step] + cost
    rollout = one_lane(spent_raw=spent[:-1], truncated=np.arange(len(costs)) == len(costs) - 1)
    return eqx.tree_at(lambda r: r.episodes.cost, rollout, jnp.asarray(spent[1:, None]))


@settings(deadline=None, max_examples=60)
@given(amounts, st.integers(1, 12), st.floats(0.125, 8, width=32), st.booleans())
def test_indicator_sums_to_the_breach(costs, step, other, tie):
    """Also where a sum of costs meets the limit exactly, which is no breach."""
    total = np.cumsum(np.array(costs, np.float32), dtype=np.float32)
    limit = float(total[min(step, len(costs)) - 1]) if tie else other
    episode = played(costs)
    final = float(episode.episodes.cost[-1, 0])
    for at_end in (False, True):
        signal = np.asarray(breach_indicator(episode, limit, at_end=at_end))
        assert signal.sum() == (final > np.float32(limit))
    first = np.flatnonzero(np.asarray(episode.episodes.cost[:, 0]) > np.float32(limit))[:1]
    paid = np.flatnonzero(np.asarray(breach_indicator(episode, limit))[:, 0])
    np.testing.assert_array_equal(paid, first)  # the step that crosses the limit, and no other


def test_at_end_copes_with_negative_costs():
    """2 - 1.5 ends below the limit of 1; the first crossing would have been paid all the same."""
    assert float(breach_indicator(played([2.0, -1.5]), 1.0, at_end=True).sum()) == 0


# --- the constraint on a process whose episodes can all be listed ---


def settings_of(kind, gamma):
    return CPOConfig(estimation=EstimationConfig(cost_discount=gamma, window=1), constraint=kind)


@pytest.fixture(scope="module", params=[("indicator", 1.0), ("indicator", 0.9), ("mean", 0.9)])
def exact(request):
    """The population, an exact critic, the constraint estimated from them, and the truth."""
    kind, gamma = request.param
    with jax.enable_x64(True):
        rollout, nodes, afters = population(gamma)
        spent_next = np.asarray(rollout.spent + rollout.discount * rollout.cost)[:, 0]
        if kind == "mean":
            truth = Truth(TABLE, gamma)
            here, after = ([truth.remaining(node)[0] for node in some] for some in (nodes, afters))

            def value(table):
                return Truth(table, gamma).remaining(ROOT)[0] - 1
        else:
            law = Law(TABLE, gamma)
            here = [law.breach_after(node, node.spent) for node in nodes]
            after = [law.breach_after(node, y) for node, y in zip(afters, spent_next, strict=True)]

            def value(table):
                return Law(table, gamma).breach() - EPSILON

        here, after = (jnp.asarray(values)[None, :, None] for values in (here, after))
        constraint = expectation_constraint(settings_of(kind, gamma))
        batch = batch_of(rollout, here, after)
        found = estimated(constraint, batch, make_terms(LIMIT, EPSILON))
    return SimpleNamespace(value=value, **vars(found))


def test_value_and_gradient_are_exact(exact):
    truth = difference_quotients(exact.value)
    with jax.enable_x64(True):
        np.testing.assert_allclose(
            exact.estimate.bound(jnp.zeros(1)), [exact.value(TABLE)], rtol=1e-12
        )
        found = surrogate_gradients(exact.rollout, exact.samples, exact.estimate, exact.length)[0]
    assert np.abs(truth).max() > 0.02
    np.testing.assert_allclose(found, truth, rtol=1e-6, atol=1e-9)


# --- the step, against the dual of the original CPO ---


def dual_step(g, b, hessian, c, radius):
    """max g.s subject to c + b.s <= 0 and s'Hs/2 <= radius, by projection of the two branches of
    CPO's dual.

    After the derivation in the appendix of Achiam et al.; returns the step and whether it is a
    recovery.
    """
    v, w = np.linalg.solve(hessian, g), np.linalg.solve(hessian, b)
    q, r, s = g @ v, g @ w, b @ w
    left = 2 * radius - c**2 / s
    if c > 0 and left < 0:
        return -np.sqrt(2 * radius / s) * w, True
    if c < 0 and left < 0:
        return np.sqrt(2 * radius / q) * v, False
    a = q - r**2 / s
    # lambda c + r > 0 where the constraint is active: on one side of -r / c.
    turn = -r / c if c != 0 else np.copysign(np.inf, -r)
    active, inactive = ((0, turn), (turn, np.inf)) if c < 0 else ((turn, np.inf), (0, turn))

    def project(value, interval):
        return max(interval[0], min(interval[1], value), 1e-300)

    def f_a(x):
        return -0.5 * (a / x + left * x) + r * c / s

    def f_b(x):
        return -0.5 * (q / x + 2 * radius * x)

    x_a, x_b = project(np.sqrt(a / left), active), project(np.sqrt(q / (2 * radius)), inactive)
    x = x_a if f_a(x_a) >= f_b(x_b) else x_b
    nu = max(0.0, x * c + r) / s
    return (v - nu * w) / x, False


@settings(deadline=None, max_examples=100)
@given(
    st.integers(0, 2**32 - 1),
    st.floats(-2.5, 2.5).filter(lambda c: abs(c) > 1e-3 and abs(abs(c) - 1) > 1e-3),
)
def test_solver_agrees_with_the_dual_on_random_problems(seed, reach):
    """`reach` is c over what the trust region can change of it: a recovery beyond 1."""
    rng = np.random.default_rng(seed)
    size, radius = int(rng.integers(2, 6)), 10 ** rng.uniform(-3, 0)
    factor = rng.normal(size=(size, size))
    hessian = factor @ factor.T + 0.1 * np.eye(size)
    g, b = rng.normal(size=(2, size)) * 10 ** rng.uniform(-2, 2, (2, 1))
    natural = np.linalg.solve(hessian, np.stack([g, b]).T)
    gram = np.stack([g, b]) @ natural
    c = reach * np.sqrt(2 * radius * gram[1, 1])
    expected, recovery = dual_step(g, b, hessian, c, radius)
    with jax.enable_x64(True):
        solution = jitted_solve(jnp.asarray(gram), jnp.asarray([c]), radius)
    assert (solution.tier == Tier.BOUND_RESTORATION) == recovery
    found = natural @ np.asarray(solution.coefficients)
    # At c = kappa the feasible point is unique; a square root there loses half the digits.
    np.testing.assert_allclose(found, expected, atol=1e-4 * np.abs(expected).max())


jitted_solve = jax.jit(solve)
