"""The exact quantities of the worst-case bounds, against a walk through every episode."""

from itertools import product

import numpy as np
import pytest

from canary.exact.worst_case import exact_update
from theory.episodes import MDP, softmax

OLD = softmax(np.array([[0.3, -0.5], [0.8, 0.1], [0.0, 0.0]]))
NEW = softmax(np.array([[-0.4, 0.5], [0.9, 0.3], [0.0, 0.0]]))
DISCOUNT = 0.9


def walk(policy, signal, time=0, state=0, spent=0.0, first=None):
    """E[sum of discounted signals] from an augmented state on; the first action may be given."""
    if MDP.terminal[state] or time == MDP.horizon:
        return 0.0
    chances, total = policy[state] if first is None else np.eye(MDP.actions)[first], 0.0
    for action, follower in product(range(MDP.actions), range(MDP.states)):
        cost, pace = MDP.cost[state, action, follower], DISCOUNT**time
        rest = walk(policy, signal, time + 1, follower, spent + pace * cost)
        weight = chances[action] * MDP.transition[state, action, follower]
        total += weight * (signal(cost, pace, spent) + DISCOUNT * rest)
    return total


def augmented_states(time=0, state=0, spent=0.0):
    if MDP.terminal[state] or time == MDP.horizon:
        return
    yield time, state, spent
    for action, follower in product(range(MDP.actions), range(MDP.states)):
        paid = DISCOUNT**time * MDP.cost[state, action, follower]
        yield from augmented_states(time + 1, follower, spent + paid)


def surrogate(time=0, state=0, chance=1.0):
    """Sum over the old policy's episodes of the new policy's expected advantages."""
    if MDP.terminal[state] or time == MDP.horizon:
        return 0.0
    cost = lambda cost, pace, spent: cost  # noqa: E731
    qualities = [walk(OLD, cost, time, state, first=action) for action in range(MDP.actions)]
    total = chance * DISCOUNT**time * (NEW[state] - OLD[state]) @ qualities
    for follower, step in enumerate(OLD[state] @ MDP.transition[state]):
        total += surrogate(time + 1, follower, chance * step)
    return total


def test_alpha_is_the_largest_expected_advantage_over_augmented_states():
    signals = {
        "alpha": lambda cost, pace, spent: cost,
        "augmented_alpha": lambda cost, pace, spent: pace * cost**2 + 2 * spent * cost,
    }
    update = exact_update(MDP, OLD, NEW, DISCOUNT)
    for name, signal in signals.items():
        largest = max(
            abs(
                sum(
                    NEW[x[1], action] * walk(OLD, signal, *x, first=action)
                    for action in range(MDP.actions)
                )
                - walk(OLD, signal, *x)
            )
            for x in set(augmented_states())
        )
        assert getattr(update, name) == pytest.approx(largest)
    mean, square = (walk(NEW, signal) for signal in signals.values())
    assert (update.old_mean, update.mean) == pytest.approx((walk(OLD, signals["alpha"]), mean))
    assert update.surrogate_mean == pytest.approx(update.old_mean + surrogate())
    assert update.deviation == pytest.approx((square - mean**2) ** 0.5)
