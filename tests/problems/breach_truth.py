"""Exact tail risk of the listed process: breach probability, CVaR, law of the cost to come."""

from functools import cache

import numpy as np

from problems.probe_mdps import ACTIONS, EPSILON, HORIZON, ROOT, Node, softmax

COPIES = 8**HORIZON
"""Every probability of the process under `TABLE` is a multiple of 1 / COPIES."""


class Law:
    """The distribution of the cost to come, in limits, by recursion over the tree of episodes."""

    def __init__(self, table: np.ndarray, gamma: float):
        self._chance, self._gamma = softmax(table), gamma
        self.to_come = cache(self._to_come)

    def _to_come(self, node: Node | None) -> dict[float, float]:
        """Probability of every value of the discounted cost still to come."""
        if node is None or node.time == HORIZON:
            return {0.0: 1.0}
        law: dict[float, float] = {}
        for action in range(ACTIONS):
            for cost, after in node.outcomes(action, self._gamma):
                for later, chance in self.to_come(after).items():
                    value = round(cost + self._gamma * later, 12)
                    law[value] = law.get(value, 0.0) + self._chance[node.cell, action] / 2 * chance
        return law

    def breach_after(self, node: Node | None, spent: float) -> float:
        """P(C > limit) seen from a node where `spent` is spent; 0 once it was paid."""
        if spent > 1:
            return 0.0
        discount = 1.0 if node is None else node.discount
        return sum(p for cost, p in self.to_come(node).items() if spent + discount * cost > 1)

    def breach(self) -> float:
        return self.breach_after(ROOT, 0.0)

    def cvar(self) -> float:
        """The mean of the worst EPSILON of all episodes."""
        left, total = EPSILON, 0.0
        for cost, chance in sorted(self.to_come(ROOT).items(), reverse=True):
            taken = min(left, chance)
            total, left = total + taken * cost, left - taken
        return total / EPSILON

    def quantiles(self, node: Node | None) -> np.ndarray:
        """The quantiles of levels (i + 1/2) / COPIES, which hold the whole law under `TABLE`."""
        costs, chances = zip(*sorted(self.to_come(node).items()), strict=True)
        return np.repeat(costs, np.rint(np.array(chances) * COPIES).astype(int))
