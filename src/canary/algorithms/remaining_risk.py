"""How risky the rest of an episode is, from Canary's two cost critics and the cost spent so far.

With y the spent cost, g the cost discount, V the value of the cost and V~ that of the augmented
cost (paper eqs. y-recursion, aug-cost), all in units of the limit,

    E[C | x] = y + g V(x),        E[C^2 | x] = y^2 + g V~(x),

or, with a dead zone, E[X | x] = phi(y) + V(x) and E[X^2 | x] = phi(y)^2 + V~(x) for the shaped cost
X = phi(C), and Cantelli's inequality turns these moments into a bound on P(C > limit | x)
(eq:cantelli). At the start of an episode (y = 0, g = 1) that is the bound the policy was trained
on. Critics are estimates, so this is one too: it tells a person or a supervisor when an episode
turns risky; a guarantee is the business of certification.
"""

from dataclasses import dataclass

import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from canary.networks import MLP, critic_values
from canary.numerics.risk import cantelli_probability
from canary.numerics.shaped_cost import shaped

COST_CRITICS = slice(1, 3)
"""Where Canary keeps the critics of the cost and of its square; the first is that of the reward."""


@dataclass(frozen=True)
class RiskCritics:
    """Canary's two cost critics, which tell the risk that is left in an episode."""

    networks: MLP
    """V and V~, stacked along the first axis."""
    dead_zone: float | None
    """Of the shaped cost that they are about; None: of the cost itself."""
    time_feature: bool


def remaining_risk(
    critics: MLP,
    inputs: Float[Array, "*batch input"],
    spent: Float[Array, "*batch"],
    discount: Float[Array, "*batch"],
    *,
    dead_zone: float | None,
) -> Float[Array, "*batch"]:
    """Bound on P(C > limit | x) from the stacked cost critics and what they see; y in units of the
    limit."""
    value, square_value = critic_values(critics, inputs)
    # The shaped cost does not grow beyond the limit: then none of it is to come, which is no good
    # news.
    saturated = (spent >= 1) & (dead_zone is not None)
    if dead_zone is not None:
        spent, discount = shaped(spent, dead_zone), jnp.ones_like(discount)
    # A fit can put V a little below 0, which no cost is: a spent budget must not look half unspent.
    value = jnp.maximum(value, 0)
    mean, variance = episode_moments(value, square_value, spent, discount)
    # Two fits can contradict each other. "No variance, hence no risk" would be the wrong way to
    # settle that.
    risk = jnp.where(
        variance > 0, cantelli_probability(mean, variance, 1.0), markov(discount * value, 1 - spent)
    )
    return jnp.where(saturated, 1.0, risk)


def episode_moments(
    value: ArrayLike, square_value: ArrayLike, spent: ArrayLike, discount: ArrayLike
) -> tuple[Float[Array, "*batch"], Float[Array, "*batch"]]:
    """Mean and variance of the whole episode's cost, given where it is."""
    mean = jnp.asarray(spent) + jnp.asarray(discount) * value
    second_moment = jnp.square(jnp.asarray(spent)) + jnp.asarray(discount) * square_value
    return mean, second_moment - jnp.square(mean)


def markov(mean: ArrayLike, budget: ArrayLike) -> Float[Array, "*batch"]:
    """P(R > budget) <= E[R] / budget for a cost R >= 0 that is still to come; 1 if the budget is
    gone."""
    mean, budget = jnp.asarray(mean), jnp.asarray(budget)
    bound = jnp.minimum(mean / jnp.where(budget > 0, budget, 1), 1.0)
    return jnp.where(
        (budget < 0) | ((budget == 0) & (mean > 0)), 1.0, jnp.where(budget == 0, 0.0, bound)
    )
