"""What an estimator of a tail-risk constraint can see of a policy: the law of the episode cost, and
of the score with it.

With s(tau) = sum_t grad_theta log pi(a_t | x_t) the score of an episode, every relative variance of
the paper's appendix (app:scaling) needs three numbers for each cost k, and no more:

    probability  P(C = k),        score  E[s 1(C = k)],        square  E[|s|^2 1(C = k)].

In a finite environment they follow exactly by dynamic programming, because |s + u|^2 = |s|^2 + 2
s.u + |u|^2.
"""

from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float

from canary.exact.distribution import Policy, tabulate
from canary.exact.mdp import FiniteMDP


@dataclass(frozen=True, eq=False)
class ScoredLaw:
    """The law of the episode cost with the first two moments of the score on every cost."""

    cost: Float[np.ndarray, "atom"] = field(repr=False)
    probability: Float[np.ndarray, "atom"] = field(repr=False)
    score: Float[np.ndarray, "atom parameter"] = field(repr=False)
    """E[s 1(C = cost)]."""
    square: Float[np.ndarray, "atom"] = field(repr=False)
    """E[|s|^2 1(C = cost)]."""

    def mean(self, values: Float[np.ndarray, "atom"]) -> float:
        """E[f(C)] for f given on the atoms."""
        return float(self.probability @ values)

    def gradient(self, values: Float[np.ndarray, "atom"]) -> Float[np.ndarray, "parameter"]:
        """E[s f(C)], which is the gradient of E[f(C)] (the score-function identity)."""
        return values @ self.score

    def violation(self, limit: float) -> float:
        """P(C > limit), strictly."""
        return float(self.probability[self.cost > limit].sum())

    def value_at_risk(self, epsilon: float) -> float:
        """The smallest cost eta with P(C > eta) <= epsilon (eq:strict-var)."""
        order = np.argsort(self.cost, kind="stable")
        cost, below = self.cost[order], np.cumsum(self.probability[order])
        return float(cost[np.argmax(1 - below <= epsilon + 1e-12)])


def from_trajectories(
    cost: Float[np.ndarray, "episode"],
    score: Float[np.ndarray, "episode parameter"],
    probability: Float[np.ndarray, "episode"] | None = None,
) -> ScoredLaw:
    """The law of listed episodes: all of them with their probabilities, or a sample of equal
    ones."""
    weight = np.full(len(cost), 1 / len(cost)) if probability is None else probability
    return ScoredLaw(cost, weight, weight[:, None] * score, weight * (score**2).sum(1))


def scored_law(mdp: FiniteMDP, policy: Policy) -> ScoredLaw:
    """The exact law under a policy whose parameters theta[state, action] are added to the logits of
    its actions.

    In state s the score of action a is e_a - pi(. | s, spent) in the block of s. The policy itself
    may be any that `cost_law` takes; a softmax table is the case in which theta is everything that
    it has.
    """
    table = np.asarray(tabulate(mdp, policy))
    if table.ndim == 3:  # actions: their probabilities are 0 and 1, and so are their scores 0
        table = np.eye(mdp.actions)[table]
    size = mdp.states * mdp.actions
    atoms = mdp.levels_at(mdp.horizon)
    ended = np.zeros((atoms, 2 + size))  # columns: probability, square, score
    mass = np.zeros((mdp.states, 1, 2 + size))
    mass[:, 0, 0] = mdp.initial
    for time in range(mdp.horizon):
        levels = mass.shape[1]
        ended[:levels] += mass[mdp.terminal].sum(0)
        mass[mdp.terminal] = 0.0
        flow = _after_action(mass, table[time, :, :levels])
        arrivals = mdp.kernel_transposed @ flow.reshape(size, -1)
        mass = np.zeros((mdp.states, mdp.levels_at(time + 1), 2 + size))
        for step, arrived in zip(
            mdp.steps_of_cost, arrivals.reshape(-1, mdp.states, levels, 2 + size), strict=True
        ):
            mass[:, step : step + levels] += arrived
    ended += mass.sum(0)
    return ScoredLaw(mdp.support, ended[:, 0], ended[:, 2:], ended[:, 1])


def _after_action(
    mass: Float[np.ndarray, "state level moment"], chance: Float[np.ndarray, "state level action"]
) -> Float[np.ndarray, "state action level moment"]:
    """The moments of probability, |s|^2 and s after the score u of the action was added to s."""
    states, actions = mass.shape[0], chance.shape[2]
    flow = np.repeat(mass[:, None], actions, axis=1)
    for state in range(states):
        block = slice(2 + state * actions, 2 + (state + 1) * actions)
        score = np.eye(actions)[:, None, :] - chance[state][None]  # [action, level, parameter]
        inner = (flow[state, :, :, block] * score).sum(-1)
        weight = flow[state, :, :, 0]
        flow[state, :, :, 1] += 2 * inner + weight * (score**2).sum(-1)
        flow[state, :, :, block] += weight[..., None] * score
    return flow * chance.transpose(0, 2, 1)[..., None]
