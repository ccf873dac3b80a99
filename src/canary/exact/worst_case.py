"""The paper's worst-case bounds (th:worst-case-violation, cor:recovery) with exact quantities, for
one update of a policy in a finite environment.

The policy sees only the state. Let R_t be the discounted remaining cost, m_t(s) = E[R_t | s] and
q_t(s) = E[R_t^2 | s]. The values of the cost and of the augmented cost at x = (s, g, y) are then

    V(x) = m_t(s),      V~(x) = 2 y m_t(s) + g_t q_t(s),

so the expected advantages of a new policy are linear in y, and their largest absolute values over
all augmented states are at the smallest and the largest reachable y.

With the radius delta of the trust region, K = sqrt(2 delta) gamma_c / (1 - gamma_c)^2 and mu_k, mu
the means before and after the update, the paper's bounds are

    |mu - L_mu| <= K alpha
    mu <= l + K alpha       after a nominal or bound-restoring step, mu_k + K alpha after a mean-restoring one
    mu <= l + sigma / sqrt(beta)    after a nominal or bound-restoring step, if sigma >= sqrt(beta) K alpha

and `largest_bound`.
"""

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from canary.exact.mdp import FiniteMDP

Policy = Float[np.ndarray, "state action"]


@dataclass(frozen=True)
class Update:
    """One update, in raw units: moments of the discounted episode cost before and after it, and the
    theorem's alpha = max_x |E_{a ~ new} A_old(x, a)|."""

    old_mean: float
    surrogate_mean: float
    """L_mu of the new policy; the bounds follow from |mean - L_mu| <= K alpha."""
    mean: float
    deviation: float
    alpha: float
    """alpha of the cost."""
    augmented_alpha: float
    """alpha of the augmented cost."""


def exact_update(mdp: FiniteMDP, old: Policy, new: Policy, discount: float) -> Update:
    """The update from `old` to `new`; every action must have a positive probability."""
    values = cost_to_come(mdp, old, discount)
    after = cost_to_come(mdp, new, discount)
    lowest, highest = spent_range(mdp, discount)
    old_mean = surrogate_mean = float(mdp.initial @ values[0, 0])
    alpha = augmented = 0.0
    visits = mdp.initial
    for time in range(mdp.horizon):
        reached = np.isfinite(highest[time]) & ~mdp.terminal
        first, second = (
            np.where(reached, ((quality - value[:, None]) * new).sum(1), 0)
            for quality, value in zip(
                one_step(mdp, values[time + 1], discount), values[time], strict=True
            )
        )
        surrogate_mean += discount**time * visits @ first
        visits = np.einsum("s,sa,san->n", visits * reached, old, mdp.transition)
        alpha = max(alpha, np.abs(first).max())
        for spent in (lowest, highest):
            both = 2 * np.where(reached, spent[time], 0) * first + discount**time * second
            augmented = max(augmented, np.abs(both).max())
    mean, square = mdp.initial @ after[0].T
    return Update(
        old_mean=old_mean,
        surrogate_mean=float(surrogate_mean),
        mean=float(mean),
        deviation=float(np.sqrt(max(square - mean**2, 0))),
        alpha=float(alpha),
        augmented_alpha=float(augmented),
    )


def error_factor(radius: float, discount: float) -> float:
    """K."""
    return math.sqrt(2 * radius) * discount / (1 - discount) ** 2


def largest_bound(
    update: Update, limit: float, epsilon: float, radius: float, discount: float
) -> float:
    """Largest B after a nominal step: K (beta alpha~ + 2 l alpha + 2 alpha M / eps), with
    M = |mu_k| + alpha / (1 - gamma_c)."""
    alpha, beta = update.alpha, 1 / epsilon - 1
    mean = abs(update.old_mean) + alpha / (1 - discount)
    weight = beta * update.augmented_alpha + 2 * abs(limit) * alpha + 2 * alpha * mean / epsilon
    return error_factor(radius, discount) * weight


def cost_to_come(
    mdp: FiniteMDP, policy: Policy, discount: float
) -> Float[np.ndarray, "time moment state"]:
    """E[R_t | s] and E[R_t^2 | s] for t = 0, ..., horizon."""
    values = np.zeros((mdp.horizon + 1, 2, mdp.states))
    for time in reversed(range(mdp.horizon)):
        qualities = one_step(mdp, values[time + 1], discount)
        values[time] = [np.where(mdp.terminal, 0, (q * policy).sum(1)) for q in qualities]
    return values


def one_step(
    mdp: FiniteMDP, after: Float[np.ndarray, "moment state"], discount: float
) -> tuple[Float[np.ndarray, "state action"], Float[np.ndarray, "state action"]]:
    """E[R | s, a] and E[R^2 | s, a] of R = c + discount R', from the moments of R'."""
    mean, square = after
    chance = np.where(mdp.possible, mdp.transition, 0)
    cost = np.where(mdp.possible, mdp.cost, 0)
    first = chance * (cost + discount * mean)
    second = chance * (cost**2 + 2 * discount * cost * mean + discount**2 * square)
    return first.sum(2), second.sum(2)


def spent_range(
    mdp: FiniteMDP, discount: float
) -> tuple[Float[np.ndarray, "time state"], Float[np.ndarray, "time state"]]:
    """The smallest and the largest y_t in each state; infinite in unreachable states."""
    lowest = np.full((mdp.horizon, mdp.states), np.inf)
    lowest[0, mdp.initial > 0] = 0
    highest = -lowest
    highest[0, mdp.initial > 0] = 0
    for time in range(mdp.horizon - 1):
        paid = discount**time * mdp.cost
        low = np.where(mdp.possible, lowest[time][:, None, None] + paid, np.inf)
        high = np.where(mdp.possible, highest[time][:, None, None] + paid, -np.inf)
        lowest[time + 1], highest[time + 1] = low.min((0, 1)), high.max((0, 1))
    return lowest, highest
