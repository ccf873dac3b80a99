"""Policies of a finite environment that use a given share of their threshold: what prop:ess
compares estimators on.

The proposition lets epsilon fall while the violation probability stays a fixed share of it, p = c
epsilon. A soft policy

    pi_w(a | s) = softmax(Q_w(s, a) / T),    Q_w the soft-optimal value of r - w c with temperature T,

becomes safer as the price w of a cost rises, smoothly, so a bisection over w finds the policy of
every p. The other way is to keep the policy and to move the limit.
"""

import numpy as np
from jaxtyping import Float

from canary.errors import CanaryError
from canary.exact import FiniteMDP, cost_law

TEMPERATURE = 0.05
HIGHEST_PRICE = 100.0


def soft_policy(
    mdp: FiniteMDP, price: float, temperature: float = TEMPERATURE
) -> Float[np.ndarray, "state action"]:
    """The stationary soft-optimal policy at a price of cost, by as many soft backups as an episode
    has steps."""
    gain = mdp.expected_reward - price * np.where(mdp.possible, mdp.transition * mdp.cost, 0.0).sum(
        2
    )
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
