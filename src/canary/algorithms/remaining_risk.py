"""How risky the rest of an episode is, from the critics of Canary and the cost spent so far.

With y the spent cost in limits, Canary's critic V_X of the shaped cost to come gives, by Markov's
inequality,

    P(C > limit | x) <= P(X >= 1 | x) <= E[X | x] = phi(y) + V_X(x)

which is also the weight that Canary trains with. Canary as published has the critics V of the cost
and V~ of its square (paper eqs. y-recursion, aug-cost), and Cantelli's inequality (eq:cantelli)
makes a bound of

    E[C | x] = y + g V(x),        E[C^2 | x] = y^2 + g V~(x)

Critics are estimates, so these are estimates too. A guarantee comes from certification.
"""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from canary.algorithms.canary import CanaryConfig
from canary.algorithms.cantelli_cpo import CantelliCPOConfig
from canary.networks import MLP, critic_values
from canary.numerics.costs import shaped
from canary.numerics.risk import cantelli_probability


@dataclass(frozen=True)
class RiskCritics:
    """The critics that estimate the risk left in an episode."""

    networks: MLP
    """V_X alone, or V and V~; stacked along the first axis."""
    dead_zone: float | None
    """Of the shaped cost that V_X is about; None: V and V~ are about the cost itself."""


def risk_critics(settings: Any, learner: Any) -> RiskCritics | None:
    """Those of a learner; None where its method has none."""
    networks = learner.critics.networks
    match settings:
        case CanaryConfig():  # reward, local cost, shaped cost
            last = jax.tree.map(lambda leaf: leaf[2:3], networks)
            return RiskCritics(last, settings.dead_zone)
        case CantelliCPOConfig():  # reward, cost, its square
            return RiskCritics(jax.tree.map(lambda leaf: leaf[1:3], networks), None)
        case _:
            return None


def remaining_risk(
    critics: MLP,
    inputs: Float[Array, "*batch input"],
    spent: Float[Array, "*batch"],
    discount: Float[Array, "*batch"],
    *,
    dead_zone: float | None,
) -> Float[Array, "*batch"]:
    """Bound on P(C > limit | x) from the stacked critics and what they see; y in units of the
    limit."""
    # A fit can put V a little below 0. A spent budget must not look unspent.
    values = critic_values(critics, inputs)
    value = jnp.maximum(values[0], 0)
    if dead_zone is not None:
        return jnp.minimum(shaped(spent, dead_zone) + value, 1)
    mean, variance = episode_moments(value, values[1], spent, discount)
    # Two fits can contradict each other: a variance <= 0 does not mean no risk.
    return jnp.where(
        variance > 0, cantelli_probability(mean, variance, 1.0), markov(discount * value, 1 - spent)
    )


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
