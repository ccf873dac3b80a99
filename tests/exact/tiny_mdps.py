"""Decision processes small enough to list every trajectory and every deterministic policy of."""

from collections.abc import Iterator
from functools import cache
from itertools import product

import numpy as np

from canary.exact import CostLaw, FiniteMDP, cost_law

# Seed, limit, epsilon where the constraints bind; Cantelli's admits no policy in the last two.
SETTINGS = [
    (0, 0.5, 0.3), (0, 2.5, 0.1), (1, 1.5, 0.25), (3, 1.0, 0.2), (4, 2.3, 0.3), (2, 1.0, 0.2),
    (5, 0.5, 0.6),
]  # fmt: skip


def line(costs: list[float], **settings) -> FiniteMDP:
    """A chain 0 -> 1 -> ... -> terminal whose n-th step costs costs[n]."""
    states = len(costs) + 1
    transition, cost = np.zeros((2, states, 1, states))
    transition[range(states - 1), 0, range(1, states)] = 1
    cost[range(states - 1), 0, range(1, states)] = costs
    return FiniteMDP(
        transition=transition,
        reward=np.zeros_like(cost),
        cost=cost,
        terminal=np.arange(states) == states - 1,
        initial=np.eye(states)[0],
        **{"horizon": len(costs), **settings},
    )


def random_mdp(seed: int, horizon: int = 3, unit: float = 1.0, most_cost: int = 1) -> FiniteMDP:
    """Two running states and a terminal one, two actions, costs 0..most_cost units."""
    rng = np.random.default_rng(seed)
    shape = (3, 2, 3)
    cost = rng.integers(0, most_cost + 1, shape)
    cost.flat[0] = 1  # something costs
    return FiniteMDP(
        transition=rng.dirichlet(np.ones(3), size=shape[:2]),
        reward=rng.uniform(size=shape) + cost,  # so that return and cost are in conflict
        cost=cost * unit,
        terminal=np.array([False, False, True]),
        initial=np.array([1.0, 0.0, 0.0]),
        horizon=horizon,
    )


def trajectories(mdp: FiniteMDP, table: np.ndarray) -> Iterator[tuple[float, np.ndarray]]:
    """Every trajectory under a policy [time, state, spent, action]: probability and steps."""

    def extend(chance, state, spent, steps):
        if mdp.terminal[state] or len(steps) == mdp.horizon:
            yield chance, np.array(steps).T
            return
        for action, follower in product(range(mdp.actions), range(mdp.states)):
            step = table[len(steps), state, spent, action] * mdp.transition[state, action, follower]
            if step > 0:
                paid = round(mdp.cost[state, action, follower] / float(mdp.unit))
                taken = [*steps, (state, action, follower)]
                yield from extend(chance * step, follower, spent + paid, taken)

    return extend(1.0, int(mdp.initial.argmax()), 0, [])


def every_deterministic_law(mdp: FiniteMDP) -> list[CostLaw]:
    """The laws of all deterministic policies on the reachable (time, state, spent)."""
    nodes = [
        (time, state, spent)
        for time in range(mdp.horizon)
        for state in np.flatnonzero(~mdp.terminal)
        for spent in range(mdp.levels_at(time))
        if time > 0 or state == 0
    ]
    index = tuple(np.array(nodes).T)
    laws = []
    for choice in product(range(mdp.actions), repeat=len(nodes)):
        actions = np.zeros((mdp.horizon, mdp.states, len(mdp.support)), int)
        actions[index] = choice
        laws.append(cost_law(mdp, actions))
    return laws


@cache
def enumerated(seed: int) -> tuple[FiniteMDP, np.ndarray]:
    """A random process; for each law, the probability of every cost, then the return."""
    mdp = random_mdp(seed)
    laws = every_deterministic_law(mdp)
    rows = np.array([np.append(law.probabilities, law.expected_return) for law in laws])
    return mdp, np.unique(rows.round(12), axis=0)
