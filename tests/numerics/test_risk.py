"""The inequalities that the formulas promise, on distributions and processes small enough to be
exact."""

from dataclasses import dataclass
from fractions import Fraction

import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special
from hypothesis import given, settings

from canary.numerics import risk

thresholds = st.sampled_from([0.01, 0.02, 0.05, 0.1, 0.25, 0.29, 0.5, 0.9])
# Quarters and thousandths of powers of two: sums and squares are exact, so ties at the limit are
# real ties.
costs = st.lists(st.integers(-40, 40).map(lambda n: n / 4), min_size=1, max_size=40)

# Samples of any length, in one compiled shape: the rest is marked as not valid.
value_at_risk = jax.jit(risk.value_at_risk)
conditional_value_at_risk = jax.jit(risk.conditional_value_at_risk)
cantelli_value = jax.jit(risk.cantelli_value)
cantelli_probability = jax.jit(risk.cantelli_probability)
provably_violating = jax.jit(risk.provably_violating)


def padded(sample):
    filler = [1e6] * (40 - len(sample))
    return jnp.asarray(sample + filler), jnp.arange(40) < len(sample)


@st.composite
def distributions(draw):
    """A discrete distribution as (support, probabilities)."""
    support = np.array(
        draw(
            st.lists(st.integers(-20, 60).map(lambda n: n / 4), min_size=1, max_size=6, unique=True)
        )
    )
    weights = np.array(
        draw(st.lists(st.integers(1, 1000), min_size=len(support), max_size=len(support))), float
    )
    return support, weights / weights.sum()


def moments(distribution):
    support, probability = distribution
    mean = probability @ support
    return mean, probability @ (support - mean) ** 2


def exceedance(distribution, limit):
    support, probability = distribution
    return probability[support > limit].sum()


@given(distributions(), st.integers(-20, 60).map(lambda n: n / 4))
@settings(max_examples=80, deadline=None)
def test_cantelli_probability_bounds_every_distribution(distribution, limit):
    mean, variance = moments(distribution)
    assert exceedance(distribution, limit) <= cantelli_probability(mean, variance, limit) + 1e-5


def test_cantelli_probability_is_attained_by_the_two_point_distribution():
    """No bound from two moments can be smaller: mass p at the limit's far side, just above it."""
    probability, limit, low = 0.02, 1.0, 0.0
    distribution = np.array([low, limit + 1e-6]), np.array([1 - probability, probability])
    mean, variance = moments(distribution)
    assert cantelli_probability(mean, variance, limit) == pytest.approx(probability, rel=1e-3)


@pytest.mark.parametrize(
    ("mean", "variance", "probability"),
    [
        (1.0, 0.0, 0.0),
        (1.0, 0.1, 1.0),
        (1.5, 0.0, 1.0),
        (1.5, 0.1, 1.0),
        (0.5, 0.0, 0.0),
        (0.5, 0.25, 0.5),
    ],
)
def test_cantelli_probability_at_the_edges(mean, variance, probability):
    assert cantelli_probability(mean, variance, 1.0) == pytest.approx(probability)


@given(distributions(), st.integers(-20, 60).map(lambda n: n / 4), thresholds)
@settings(max_examples=100, deadline=None)
def test_a_safe_cantelli_value_implies_the_chance_constraint(distribution, limit, epsilon):
    mean, variance = moments(distribution)
    value = float(cantelli_value(mean, variance, limit, epsilon))
    if mean <= limit and value <= -1e-4:
        assert exceedance(distribution, limit) <= epsilon + 1e-9
        assert cantelli_probability(mean, variance, limit) <= epsilon + 1e-5
    if mean <= limit and value > 1e-2:
        assert cantelli_probability(mean, variance, limit) > epsilon - 1e-5


@given(distributions(), st.integers(-20, 60).map(lambda n: n / 4), thresholds)
@settings(max_examples=100, deadline=None)
def test_the_provably_violating_region_violates(distribution, limit, epsilon):
    mean, variance = moments(distribution)
    if provably_violating(mean, np.sqrt(variance), limit, epsilon) and mean > limit + 1e-5:
        assert exceedance(distribution, limit) > epsilon - 1e-6


@given(costs, thresholds)
@settings(max_examples=100, deadline=None)
def test_value_at_risk_is_the_smallest_level_with_few_enough_exceedances(sample, epsilon):
    array, valid = padded(sample)
    level = float(value_at_risk(array, epsilon, valid))
    allowed = Fraction(str(epsilon))

    def share_above(eta):
        return Fraction(sum(cost > eta for cost in sample), len(sample))

    assert level in sample
    assert share_above(level) <= allowed
    assert all(share_above(lower) > allowed for lower in sample if lower < level)


@given(costs, thresholds)
@settings(max_examples=80, deadline=None)
def test_conditional_value_at_risk_is_the_minimum_over_thresholds(sample, epsilon):
    array, (filled, valid) = np.array(sample), padded(sample)
    found = float(conditional_value_at_risk(filled, epsilon, valid))
    grid = np.concatenate([array, np.linspace(array.min() - 1, array.max() + 1, 101)])
    brute = (grid + np.maximum(array - grid[:, None], 0).mean(axis=1) / epsilon).min()
    assert found == pytest.approx(brute, rel=1e-5, abs=1e-4)
    assert found >= float(value_at_risk(filled, epsilon, valid))


@dataclass(frozen=True)
class Tree:
    """A decision process whose states are histories, so that each augmented state (s, y, γ^t) is
    one node.

    Level t has 4^t nodes; action a of a node leads to children 2a and 2a + 1 of its four. After the
    last level nothing costs anything and both policies act alike.
    """

    depth: int
    discount: float
    odds: list[np.ndarray]  # [node, action, outcome]
    cost: list[np.ndarray]  # [node, action, outcome]


def random_tree(rng, depth: int = 4, discount: float = 0.7) -> Tree:
    shapes = [(4**level, 2, 2) for level in range(depth)]
    return Tree(
        depth=depth,
        discount=discount,
        odds=[rng.dirichlet([1, 1], shape[:2]) for shape in shapes],
        cost=[rng.exponential(size=shape) * rng.integers(0, 2, shape) for shape in shapes],
    )


def augmented_cost(tree: Tree) -> list[np.ndarray]:
    """γ^t c² + 2 y c (eq:aug-cost), with y the discounted cost spent before the step; sums to
    C²."""
    spent, result = np.zeros(1), []
    for level in range(tree.depth):
        cost, weight = tree.cost[level], tree.discount**level
        result.append(weight * cost**2 + 2 * spent[:, None, None] * cost)
        spent = (spent[:, None, None] + weight * cost).reshape(-1)
    return result


def evaluate(
    tree: Tree, policy: list[np.ndarray], signal: list[np.ndarray]
) -> tuple[float, list[np.ndarray]]:
    """Expected discounted sum of a signal under a policy, and its advantages [node, action] per
    level."""
    value, advantages = np.zeros(4**tree.depth), []
    for level in reversed(range(tree.depth)):
        future = value.reshape(-1, 2, 2)
        action_value = (tree.odds[level] * (signal[level] + tree.discount * future)).sum(-1)
        value = (policy[level] * action_value).sum(-1)
        advantages.append(action_value - value[:, None])
    return float(value[0]), advantages[::-1]


def visits(tree: Tree, policy: list[np.ndarray]) -> list[np.ndarray]:
    """Discounted visitation frequencies (1 - γ) γ^t P(node)."""
    reach, result = np.ones(1), []
    for level in range(tree.depth):
        result.append((1 - tree.discount) * tree.discount**level * reach)
        reach = (reach[:, None, None] * policy[level][:, :, None] * tree.odds[level]).reshape(-1)
    return result


def surrogate(tree: Tree, old, new, signal) -> tuple[float, float]:
    """(L(new), α): the surrogate built at the old policy, the largest expected advantage of the new
    one."""
    start, advantages = evaluate(tree, old, signal)
    expected = [(p * a).sum(-1) for p, a in zip(new, advantages, strict=True)]
    change = sum(w @ e for w, e in zip(visits(tree, old), expected, strict=True)) / (
        1 - tree.discount
    )
    return start + change, max(np.abs(e).max() for e in expected)


def random_policies(rng, tree: Tree) -> tuple[list[np.ndarray], list[np.ndarray]]:
    logits = [rng.normal(size=(4**level, 2)) for level in range(tree.depth)]
    distance = 10 ** rng.uniform(-2, 0.5)
    moved = [level + distance * rng.normal(size=level.shape) for level in logits]
    return tuple([scipy.special.softmax(x, axis=1) for x in policy] for policy in (logits, moved))


@pytest.mark.parametrize("seed", range(8))
def test_the_worst_case_bounds_hold_on_a_random_decision_process(seed):
    rng = np.random.default_rng(seed)
    tree = random_tree(rng, discount=rng.choice([0.3, 0.7, 0.9]))
    old, new = random_policies(rng, tree)
    epsilon, discount = 0.1, tree.discount
    squares = augmented_cost(tree)
    divergence = [(n * np.log(n / o)).sum(-1) for n, o in zip(new, old, strict=True)]
    radius = sum(w @ d for w, d in zip(visits(tree, old), divergence, strict=True))

    mean, second = evaluate(tree, new, tree.cost)[0], evaluate(tree, new, squares)[0]
    old_mean = evaluate(tree, old, tree.cost)[0]
    surrogate_mean, advantage = surrogate(tree, old, new, tree.cost)
    surrogate_second, augmented_advantage = surrogate(tree, old, new, squares)
    # The smallest limit for which the surrogates of the new policy meet both constraints, the bound
    # with equality.
    variance = max(surrogate_second - surrogate_mean**2, 0)
    limit = surrogate_mean + np.sqrt((1 / epsilon - 1) * variance)

    assert mean <= risk.worst_case_mean(limit, advantage, radius, discount) + 1e-5
    assert (
        abs(mean - surrogate_mean) <= risk.worst_case_mean(0.0, advantage, radius, discount) + 1e-5
    )
    true_value = risk.cantelli_value(mean, second - mean**2, limit, epsilon)
    bound = risk.worst_case_cantelli(
        mean=old_mean,
        limit=limit,
        epsilon=epsilon,
        advantage=advantage,
        augmented_advantage=augmented_advantage,
        radius=radius,
        discount=discount,
    )
    assert true_value <= bound + 1e-4
    if surrogate_mean <= old_mean:  # what a mean-restoring step guarantees
        assert mean <= risk.worst_case_mean(old_mean, advantage, radius, discount) + 1e-5
    safe_deviation = risk.excluding_deviation(epsilon, advantage, radius, discount)
    if np.sqrt(second - mean**2) >= safe_deviation:
        assert not risk.provably_violating(mean, np.sqrt(second - mean**2), limit, epsilon)
