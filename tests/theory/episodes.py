"""All episodes of a small decision process with their scores, and laws in closed form."""

import numpy as np
from scipy.special import softmax

from canary.theory import ScoredLaw, from_trajectories
from exact.tiny_mdps import random_mdp, trajectories

MDP = random_mdp(5, horizon=3, most_cost=2)
LOGITS = np.array([[0.3, -0.5], [0.8, 0.1], [0.0, 0.0]])
LIMIT, EPSILON = 3.5, 0.1


def enumerated(logits: np.ndarray = LOGITS) -> ScoredLaw:
    """Every episode is an atom of its own: its probability, cost and score."""
    chance, found = softmax(logits, -1), []
    shape = (MDP.horizon, MDP.states, len(MDP.support), MDP.actions)
    for probability, steps in trajectories(MDP, np.broadcast_to(chance[:, None], shape)):
        states, actions, followers = steps
        score = np.zeros_like(logits)
        np.add.at(score, states, np.eye(MDP.actions)[actions] - chance[states])
        found.append((probability, MDP.cost[states, actions, followers].sum(), score.ravel()))
    probability, cost, score = (np.array(column) for column in zip(*found, strict=True))
    return from_trajectories(cost, score, probability)


def gamma_law(points: int = 200_000, most: float = 60.0) -> ScoredLaw:
    """C ~ Gamma(2, 1) by quadrature; the parameter is the log of its scale, so s = C - 2."""
    cost = (np.arange(points) + 0.5) * most / points
    probability = cost * np.exp(-cost)
    return from_trajectories(cost, (cost - 2)[:, None], probability / probability.sum())
