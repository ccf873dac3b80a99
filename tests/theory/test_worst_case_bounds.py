"""The paper's worst-case bounds of an update hold on random decision processes."""

from dataclasses import dataclass

import numpy as np
import pytest
import scipy.special

from canary.exact.worst_case import Update, error_factor, largest_bound


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

    factor = error_factor(radius, discount)
    mean, second = evaluate(tree, new, tree.cost)[0], evaluate(tree, new, squares)[0]
    old_mean = evaluate(tree, old, tree.cost)[0]
    surrogate_mean, advantage = surrogate(tree, old, new, tree.cost)
    surrogate_second, augmented_advantage = surrogate(tree, old, new, squares)
    # The smallest limit for which the surrogates of the new policy meet both constraints, the bound
    # with equality.
    variance = max(surrogate_second - surrogate_mean**2, 0)
    limit = surrogate_mean + np.sqrt((1 / epsilon - 1) * variance)

    found = Update(
        old_mean=old_mean, surrogate_mean=surrogate_mean, mean=mean, deviation=np.sqrt(second - mean**2),
        alpha=advantage, augmented_alpha=augmented_advantage,
    )  # fmt: skip
    assert mean <= limit + factor * advantage + 1e-9
    assert abs(mean - surrogate_mean) <= factor * advantage + 1e-9
    true_value = (1 / epsilon - 1) * found.deviation**2 - (limit - mean) ** 2
    assert true_value <= largest_bound(found, limit, epsilon, radius, discount) + 1e-9
    if surrogate_mean <= old_mean:  # what a mean-restoring step guarantees
        assert mean <= old_mean + factor * advantage + 1e-9
    root = np.sqrt(1 / epsilon - 1)
    if found.deviation >= root * factor * advantage:
        assert mean <= limit + found.deviation / root + 1e-9  # not provably violating
