"""The law of the episode cost and of the score, and policies with a given violation probability.

With s(tau) = sum_t grad_theta log pi(a_t | x_t) the score of an episode, every relative variance of
the paper's appendix (app:scaling) is a function of three numbers for each cost k:

    probability  P(C = k),        score  E[s 1(C = k)],        square  E[|s|^2 1(C = k)].

In a finite environment they follow exactly by dynamic programming, because |s + u|^2 = |s|^2 + 2
s.u + |u|^2.
"""

from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float

from canary.errors import CanaryError
from canary.exact import FiniteMDP, cost_law
from canary.exact.distribution import Policy, tabulate

TEMPERATURE = 0.05
HIGHEST_PRICE = 100.0


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
    """The law of listed episodes with their probabilities; without them, equal ones."""
    weight = np.full(len(cost), 1 / len(cost)) if probability is None else probability
    return ScoredLaw(cost, weight, weight[:, None] * score, weight * (score**2).sum(1))


def scored_law(mdp: FiniteMDP, policy: Policy) -> ScoredLaw:
    """The exact law under a policy with parameters theta[state, action], added to its logits.

    In state s the score of action a is e_a - pi(. | s, spent) in the block of s. The policy may be
    any that `cost_law` takes.
    """
    table = np.asarray(tabulate(mdp, policy))
    if table.ndim == 3:  # actions: probabilities 0 and 1, scores 0
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


def soft_policy(
    mdp: FiniteMDP, price: float, temperature: float = TEMPERATURE
) -> Float[np.ndarray, "state action"]:
    """The stationary soft-optimal policy for r - price * c, by `horizon` soft backups.

    A higher price makes it safer, smoothly: a bisection finds the policy of every violation
    probability, as prop:ess needs them (p = c epsilon while epsilon falls).
    """
    cost = np.where(mdp.possible, mdp.transition * mdp.cost, 0.0).sum(2)
    gain = mdp.expected_reward - price * cost
    value, q = np.zeros(mdp.states), gain
    for _ in range(mdp.horizon):
        q = gain + mdp.transition @ np.where(mdp.terminal, 0.0, value)
        top = q.max(1)
        value = top + temperature * np.log(np.exp((q - top[:, None]) / temperature).mean(1))
    weight = np.exp((q - q.max(1, keepdims=True)) / temperature)
    return weight / weight.sum(1, keepdims=True)


def with_violation(
    mdp: FiniteMDP, limit: float, violation: float, temperature: float = TEMPERATURE
) -> Float[np.ndarray, "state action"]:
    """The soft policy with P(C > limit) = violation, to a relative error of 1e-6."""

    def excess(price: float) -> float:
        return cost_law(mdp, soft_policy(mdp, price, temperature)).violation(limit) - violation

    low, high = 0.0, 1.0
    if excess(low) < 0:
        raise CanaryError(f"No soft policy violates the limit {limit} as often as {violation:g}.")
    while excess(high) > 0:
        high *= 2
        if high > HIGHEST_PRICE:
            raise CanaryError(
                f"No soft policy violates the limit {limit} as rarely as {violation:g}."
            )
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if excess(middle) > 0 else (low, middle)
        if abs(excess(high)) <= 1e-6 * violation:
            break
    return soft_policy(mdp, high, temperature)
