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
    return _backward(mdp, policy, psi(mdp.support), lambda step: 0.0, 1.0)


def local_cost_advantages(mdp: FiniteMDP, policy: Policy, discount: float) -> Table:
    """A^c of the discounted cost to come, which depends on the spent cost through the policy
    alone."""
    unit, nothing = float(mdp.unit), np.zeros(len(mdp.support))
    return _backward(mdp, policy, nothing, lambda step: step * unit, discount)[0]


def _backward(
    mdp: FiniteMDP,
    policy: Policy,
    last: Float[np.ndarray, "spent"],
    paid: Callable[[int], float],
    discount: float,
) -> tuple[Table, Float[np.ndarray, "time state spent"]]:
    """Advantages and values of sum_t discount^t paid(c_t) + last(C) on every (time, state, spent)."""
    table, levels = tabulate(mdp, policy), len(last)
    value = np.broadcast_to(last, (mdp.states, levels))
    advantages = np.zeros((mdp.horizon, mdp.states, levels, mdp.actions))
    values = np.zeros(advantages.shape[:3])
    for time in reversed(range(mdp.horizon)):
        ahead = [paid(step) + discount * _shifted(value, step) for step in mdp.steps_of_cost]
        quality = mdp.kernel @ np.concatenate(ahead)
        quality = np.moveaxis(quality.reshape(mdp.states, mdp.actions, -1), 1, 2)
        mean = (quality * table[time]).sum(-1)
        running = ~mdp.terminal[:, None]
        values[time] = value = np.where(running, mean, last)
        advantages[time] = np.where(running[..., None], quality - mean[..., None], 0)
    return advantages, values


def _shifted(value: np.ndarray, step: int) -> np.ndarray:
    """The value after `step` more units were spent."""
    levels = value.shape[1]
    return value[:, np.minimum(np.arange(levels) + step, levels - 1)]
