"""Exact advantages of a function of the episode cost, by backward dynamic programming.

For psi(C), with x = (time, state, spent) and the policy that goes on afterwards,

    A^psi(x, a) = E[psi(C) | x, a] - E[psi(C) | x]

and the two factors that Canary estimates it with: the price E[psi'(C) | x] and the advantage of the
discounted cost A^c(x, a). The product is the first-order term of A^psi in what one action does to
the cost; what is left is of second order, E[psi''] times the square of that effect, and the
covariance of psi'(C) with the effect.
"""

from collections.abc import Callable

import numpy as np
from jaxtyping import Float

from canary.exact.distribution import Policy, tabulate
from canary.exact.mdp import FiniteMDP

Table = Float[np.ndarray, "time state spent action"]


def cost_function_advantages(
    mdp: FiniteMDP, policy: Policy, psi: Callable[[np.ndarray], np.ndarray]
) -> tuple[Table, Float[np.ndarray, "time state spent"]]:
    """A^psi and E[psi(C) | x] on every (time, state, spent); spent beyond reach reads as the most."""
    table, support = tabulate(mdp, policy), mdp.support
    value = np.broadcast_to(psi(support), (mdp.states, len(support))).copy()
    advantages = np.zeros((mdp.horizon, mdp.states, len(support), mdp.actions))
    values = np.zeros(advantages.shape[:3])
    for time in reversed(range(mdp.horizon)):
        ahead = np.stack([_shifted(value, step) for step in mdp.steps_of_cost])
        quality = mdp.kernel @ ahead.reshape(-1, len(support))
        quality = np.moveaxis(quality.reshape(mdp.states, mdp.actions, -1), 1, 2)
        mean = (quality * table[time]).sum(-1)
        running = ~mdp.terminal[:, None]
        value = np.where(running, mean, psi(support))
        values[time] = value
        advantages[time] = np.where(running[..., None], quality - mean[..., None], 0)
    return advantages, values


def local_cost_advantages(mdp: FiniteMDP, policy: Policy, discount: float) -> Table:
    """A^c of the discounted cost to come, which depends on the spent cost through the policy
    alone."""
    table, levels = tabulate(mdp, policy), len(mdp.support)
    unit = float(mdp.unit)
    value = np.zeros((mdp.states, levels))
    advantages = np.zeros((mdp.horizon, mdp.states, levels, mdp.actions))
    for time in reversed(range(mdp.horizon)):
        ahead = np.stack(
            [step * unit + discount * _shifted(value, step) for step in mdp.steps_of_cost]
        )
        quality = mdp.kernel @ ahead.reshape(-1, levels)
        quality = np.moveaxis(quality.reshape(mdp.states, mdp.actions, -1), 1, 2)
        mean = (quality * table[time]).sum(-1)
        value = np.where(mdp.terminal[:, None], 0.0, mean)
        advantages[time] = np.where(mdp.terminal[:, None, None], 0.0, quality - mean[..., None])
    return advantages


def _shifted(value: np.ndarray, step: int) -> np.ndarray:
    """The value after `step` more units were spent."""
    levels = value.shape[1]
    return value[:, np.minimum(np.arange(levels) + step, levels - 1)]
