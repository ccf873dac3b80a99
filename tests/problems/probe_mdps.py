"""A decision process so small that all of its episodes make one batch: the population, not a sample
of it.

Every step has eight equally likely tickets: four for the action (the policy gives one, two or three
of them to action 1) and two for what happens next. An episode of probability p appears p *
8^horizon times in it, so averages over the batch are expectations, and estimators can be compared
with the truth to rounding error.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from canary.algorithms.advantages import Batch
from canary.algorithms.trust_region import RiskEstimate, flatten
from canary.algorithms.trust_region_step import Samples
from canary.networks import MLP, CategoricalPolicy
from canary.numerics.costs import cost_moments, empty_window, record_episodes
from canary.types import EpisodeEnds, Rollout, Terms

STATES, LEVELS, ACTIONS, END = 3, 3, 2, -1
HORIZON = 3
LIMIT, EPSILON = 2.5, 0.2

# Follower and cost of (state, action, nature). State 2 may end the episode; action 1 is costly.
FOLLOWER = np.array([[[1, 2], [1, 0]], [[0, 2], [2, 2]], [[END, 0], [1, END]]])
COST = np.array([[[0.0, 0.5], [1.0, 2.0]], [[0.5, 0.0], [0.0, 1.5]], [[0.0, 1.0], [2.0, 0.5]]])

# Tickets of action 1, out of four, in (state, level); the level counts costly steps, up to two.
TICKETS = np.array([[1, 2, 3], [2, 3, 1], [3, 1, 2]])
TABLE = np.log(np.stack([4 - TICKETS, TICKETS], -1)).reshape(STATES * LEVELS, ACTIONS)


class Table(MLP):
    """A network that is one matrix and has no biases."""

    def __call__(self, x: Float[Array, "*batch input"]) -> Float[Array, "*batch action"]:
        return x[..., : STATES * LEVELS] @ self.weights[0]


class TablePolicy(CategoricalPolicy):
    """Softmax of a table; reads the one-hot cell in front of (g, y)."""

    def __init__(self, table: Float[Array, "cell action"]):
        self.network = Table((table,), ())

    @property
    def table(self) -> Float[Array, "cell action"]:
        return self.network.weights[0]


@dataclass(frozen=True)
class Node:
    """A moment of an episode. Costs are in units of the limit."""

    time: int
    state: int
    level: int
    spent: float
    discount: float

    @property
    def cell(self) -> int:
        return self.state * LEVELS + self.level

    def outcomes(self, action: int, gamma: float) -> Iterator[tuple[float, "Node | None"]]:
        """(cost, next node or None at the end) for both tickets of nature."""
        for nature in range(2):
            cost = COST[self.state, action, nature] / LIMIT
            follower = int(FOLLOWER[self.state, action, nature])
            level = min(self.level + (cost > 0), LEVELS - 1)
            spent = self.spent + self.discount * cost
            after = Node(self.time + 1, follower, level, spent, self.discount * gamma)
            yield cost, after if follower != END else None


ROOT = Node(0, 0, 0, 0.0, 1.0)


def softmax(table: np.ndarray) -> np.ndarray:
    weights = np.exp(table - table.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True)


class Truth:
    """Exact expectations of a policy table by recursion over the tree of episodes."""

    def __init__(self, table: np.ndarray, gamma: float):
        self._chance, self._gamma = softmax(table), gamma
        self.remaining = cache(self._remaining)
        self.augmented = cache(self._augmented)

    def _remaining(self, node: Node | None) -> tuple[float, float]:
        """E[R] and E[R^2] of the discounted cost R still to come."""
        if node is None or node.time == HORIZON:
            return 0.0, 0.0
        first = second = 0.0
        for action in range(ACTIONS):
            for cost, after in node.outcomes(action, self._gamma):
                chance = self._chance[node.cell, action] / 2
                mean, square = self.remaining(after)
                first += chance * (cost + self._gamma * mean)
                second += chance * (
                    cost**2 + 2 * self._gamma * cost * mean + self._gamma**2 * square
                )
        return first, second

    def _augmented(self, node: Node | None) -> float:
        """E of the discounted sum of c~ = g c^2 + 2 y c from here on."""
        if node is None or node.time == HORIZON:
            return 0.0
        return sum(
            self._chance[node.cell, action]
            / 2
            * (
                node.discount * cost**2
                + 2 * node.spent * cost
                + self._gamma * self.augmented(after)
            )
            for action in range(ACTIONS)
            for cost, after in node.outcomes(action, self._gamma)
        )

    def constraints(self) -> np.ndarray:
        """(B, mu - 1) of the episode cost in units of the limit."""
        mean, square = self.remaining(ROOT)
        return np.array([(1 / EPSILON - 1) * (square - mean**2) - (1 - mean) ** 2, mean - 1])


def difference_quotients(function: Callable, h: float = 1e-5) -> np.ndarray:
    """d function(table) / d table at `TABLE` by central differences: [..., cell, action]."""
    slopes = []
    for index in np.ndindex(TABLE.shape):
        shift = np.zeros_like(TABLE)
        shift[index] = h
        slopes.append((function(TABLE + shift) - function(TABLE - shift)) / (2 * h))
    return np.stack(slopes, -1).reshape(*np.shape(slopes[0]), *TABLE.shape)


def surrogate_gradients(
    rollout: Rollout, samples: Samples, estimate: RiskEstimate, scale: float | Array
) -> np.ndarray:
    """d bound / d table with changes Z = scale * mean[g ratio A]: [constraint, cell, action]."""
    rows = rollout.inputs[:, 0]
    old = TablePolicy(jnp.asarray(TABLE))(rows).log_prob(samples.action)

    def bounds(table: Array) -> Array:
        ratio = jnp.exp(TablePolicy(table)(rows).log_prob(samples.action) - old)
        return estimate.bound(scale * (samples.cost_advantages * samples.weight * ratio).mean(1))

    return np.asarray(jax.jacobian(bounds)(jnp.asarray(TABLE)))


def policy_gradient(rollout: Rollout, advantage: Array) -> np.ndarray:
    """E[sum_t grad log pi(a_t | x_t) A_t] of an episode at `TABLE`, exactly."""
    rows, action = rollout.inputs[:, 0], rollout.action[:, 0]

    def surrogate(table: Array) -> Array:
        return (TablePolicy(table)(rows).log_prob(action) * advantage[:, 0]).sum()

    gradient = np.asarray(jax.grad(surrogate)(jnp.asarray(TABLE)))
    return gradient / np.asarray(rollout.episodes.ended).sum()


def episodes(gamma: float) -> list[tuple[int, list[tuple[Node, int, float, Node | None]]]]:
    """Every episode as (node, action, cost, next node) steps, after the number of its copies."""

    def extend(node: Node, copies: int, steps: list):
        for action in range(ACTIONS):
            tickets = TICKETS[node.state, node.level]
            share = copies * (tickets if action else 4 - tickets) // 8
            for cost, after in node.outcomes(action, gamma):
                path = [*steps, (node, action, cost, after)]
                if after is None or after.time == HORIZON:
                    yield share, path
                else:
                    yield from extend(after, share, path)

    return list(extend(ROOT, 8**HORIZON, []))


def population(gamma: float) -> tuple[Rollout, list[Node], list[Node | None]]:
    """All episodes one after another in a single lane, and the node before and after each step."""
    steps = [
        (node, action, cost, after, step is path[-1])
        for copies, path in episodes(gamma)
        for _ in range(copies)
        for step in path
        for node, action, cost, after in [step]
    ]
    nodes, afters = [step[0] for step in steps], [step[3] for step in steps]
    cost, spent, discount = (
        np.array(values)[:, None]
        for values in ([s[2] for s in steps], [n.spent for n in nodes], [n.discount for n in nodes])
    )
    terminated = np.array([after is None for after in afters])[:, None]
    last = np.array([step[4] for step in steps])[:, None]
    time = np.array([node.time for node in nodes])[:, None]
    cells = np.eye(STATES * LEVELS)[[node.cell for node in nodes]][:, None]
    inputs = jnp.asarray(np.concatenate([cells, discount[..., None], spent[..., None]], -1))
    yes = jnp.ones(last.shape, bool)
    ends = EpisodeEnds(
        ended=jnp.asarray(last),
        valid=yes,
        reward=jnp.zeros(last.shape),
        cost=jnp.asarray((spent + discount * cost) * LIMIT),
        length=jnp.asarray(time + 1),
        terminated=jnp.asarray(terminated),
    )
    rollout = Rollout(
        inputs=inputs,
        next_inputs=inputs,
        action=jnp.asarray([step[1] for step in steps])[:, None],
        reward=jnp.asarray(np.array([step[1] for step in steps], float)[:, None]),
        cost=jnp.asarray(cost),
        spent=jnp.asarray(spent),
        spent_raw=jnp.asarray(spent * LIMIT),
        discount=jnp.asarray(discount),
        terminated=jnp.asarray(terminated),
        truncated=jnp.asarray(last & ~terminated),
        episodes=ends,
    )
    return rollout, nodes, afters


def estimated(constraint: Callable, batch: Batch, terms: Terms) -> SimpleNamespace:
    """A constraint's estimate from a batch, and what a step reads of it."""
    rollout, estimate = batch.rollout, constraint(batch, terms)
    samples = flatten(rollout, rollout.reward, estimate)
    return SimpleNamespace(
        rollout=rollout, batch=batch, estimate=estimate, samples=samples,
        length=cost_moments(batch.window, 1, LIMIT).length,
    )  # fmt: skip


def batch_of(rollout: Rollout, values: Array, next_values: Array, reward: Any = None) -> Batch:
    """The rollout with these values of its critics; its rewards are its reward advantages."""
    window = record_episodes(empty_window(rollout.done.size), rollout.episodes)
    reward = (rollout.reward, rollout.reward) if reward is None else reward
    return Batch(rollout, reward, values, next_values, window)


def copies(nodes: list[Node]) -> dict[Node, np.ndarray]:
    """Where each node stands in the population."""
    return {node: np.flatnonzero([other == node for other in nodes]) for node in set(nodes)}
