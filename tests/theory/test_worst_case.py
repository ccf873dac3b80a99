"""The paper's worst-case bounds of an update and their exact quantities, by walks through episodes."""

from collections.abc import Callable, Iterator
from dataclasses import astuple, dataclass
from functools import cache
from itertools import product

import numpy as np
import pytest
from scipy.special import softmax

from canary.exact import FiniteMDP
from canary.exact.worst_case import Update, error_factor, exact_update, largest_bound
from exact.tiny_mdps import random_mdp
from theory.episodes import MDP

State = tuple[int, int, float]
"""An augmented state: time, state, discounted cost spent."""
Policy = Callable[[State], np.ndarray]
START = (0, 0, 0.0)
SIGNALS = (
    lambda cost, pace, spent: cost,
    lambda cost, pace, spent: pace * cost**2 + 2 * spent * cost,  # sums to C^2 (eq:aug-cost)
)


@dataclass(frozen=True)
class Walk:
    """Expectations over the episodes of a process, step by step."""

    mdp: FiniteMDP
    discount: float

    def steps(self, x: State) -> Iterator[tuple[int, float, float, State]]:
        """Action, transition probability, cost and next state of all steps from x."""
        time, state, spent = x
        if self.mdp.terminal[state] or time == self.mdp.horizon:
            return
        for action, follower in product(range(self.mdp.actions), range(self.mdp.states)):
            cost = self.mdp.cost[state, action, follower]
            after = time + 1, follower, spent + self.discount**time * cost
            yield action, self.mdp.transition[state, action, follower], cost, after

    def value(self, policy: Policy, signal, x: State = START, first: int | None = None) -> float:
        """E[sum of discounted signals] from x on; the first action may be given."""
        total, pace = 0.0, self.discount ** x[0]
        for action, chance, cost, after in self.steps(x):
            weight = chance * (policy(x)[action] if first is None else action == first)
            later = self.discount * self.value(policy, signal, after) if weight else 0.0
            total += weight * (signal(cost, pace, x[2]) + later)
        return total

    def along(self, policy: Policy, number: Callable[[State], float], x: State = START) -> float:
        """E[sum of the discounted numbers of all states] from x on."""
        steps = list(self.steps(x))
        total = number(x) if steps else 0.0
        for action, chance, _, after in steps:
            total += self.discount * policy(x)[action] * chance * self.along(policy, number, after)
        return total

    def states(self, x: State = START) -> Iterator[State]:
        for _, _, _, after in self.steps(x):
            yield x
            yield from self.states(after)


def walked_update(walk: Walk, old: Policy, new: Policy) -> tuple[Update, float]:
    """The quantities of an update by their definitions, and the surrogate of E[C^2]."""
    found = []
    for signal in SIGNALS:

        @cache
        def advantage(x, signal=signal):
            actions = [walk.value(old, signal, x, action) for action in range(walk.mdp.actions)]
            return new(x) @ actions - walk.value(old, signal, x)

        largest = max(abs(advantage(x)) for x in set(walk.states()))
        start = walk.value(old, signal)
        surrogate = start + walk.along(old, advantage)
        found.append((start, surrogate, walk.value(new, signal), largest))
    (start, surrogate, mean, alpha), (_, second, square, augmented) = found
    return Update(start, surrogate, mean, (square - mean**2) ** 0.5, alpha, augmented), second


def test_exact_quantities_are_those_of_a_walk_through_every_episode():
    old = softmax(np.array([[0.3, -0.5], [0.8, 0.1], [0.0, 0.0]]), -1)
    new = softmax(np.array([[-0.4, 0.5], [0.9, 0.3], [0.0, 0.0]]), -1)
    expected, _ = walked_update(Walk(MDP, 0.9), lambda x: old[x[1]], lambda x: new[x[1]])
    assert astuple(exact_update(MDP, old, new, 0.9)) == pytest.approx(astuple(expected))


@pytest.mark.parametrize("seed", range(8))
def test_the_worst_case_bounds_hold_on_a_random_decision_process(seed):
    """Policies are those of every augmented state, as a network's."""
    rng = np.random.default_rng(seed)
    epsilon, discount, distance = 0.1, rng.choice([0.3, 0.7, 0.9]), 10 ** rng.uniform(-2, 0.5)
    walk = Walk(random_mdp(seed, horizon=3, most_cost=2), discount)
    logits, moves = (cache(lambda x: rng.normal(size=2)) for _ in range(2))
    old, new = (
        cache(lambda x, far=far: softmax(logits(x) + far * moves(x))) for far in (0.0, distance)
    )
    found, surrogate_second = walked_update(walk, old, new)
    radius = walk.along(old, lambda x: new(x) @ np.log(new(x) / old(x))) * (1 - discount)
    slip = error_factor(radius, discount) * found.alpha
    # The smallest limit at which the surrogates meet both constraints, the bound with equality
    root = np.sqrt(1 / epsilon - 1)
    variance = max(surrogate_second - found.surrogate_mean**2, 0)
    limit = found.surrogate_mean + root * np.sqrt(variance)
    assert found.mean <= limit + slip + 1e-9
    assert abs(found.mean - found.surrogate_mean) <= slip + 1e-9
    true_value = root**2 * found.deviation**2 - (limit - found.mean) ** 2
    assert true_value <= largest_bound(found, limit, epsilon, radius, discount) + 1e-9
    if found.surrogate_mean <= found.old_mean:  # what a mean-restoring step guarantees
        assert found.mean <= found.old_mean + slip + 1e-9
    if found.deviation >= root * slip:
        assert found.mean <= limit + found.deviation / root + 1e-9  # not provably violating
