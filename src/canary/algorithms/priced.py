"""The reward minus a price on the constraint: the objective that Canary and PPO-Lagrangian share.

    A(x, a) = (A^r / sd(A^r) - p(x) A^c / sd(A^c)) / (1 + p(x))

A^c is the advantage of what is priced and p(x) its price: lambda everywhere (PPO-Lagrangian), or
lambda times a weight of the state (Canary). Each advantage is in units of its own deviation, so
p / (1 + p) is the constraint's share of the step in a state, whatever the units of reward and cost.
Dividing by 1 + p gives every state the same say. Without it a few states at risk would drown out all
others, and the policy would forget what earns the reward where cost is free.

lambda is a proportional-integral controller in logarithms. With K what the constraint limits, in
units of what it allows:

    e = clip(log K, -1, 1),    log I <- clip(log I + k_i e),    lambda = exp(clip(log I + k_p e))

The policy integrates what lambda asks for, so the proportional term does most of the work. K is
measured over a window of episodes and lags by as long as the window takes to renew. Meanwhile a high
price overshoots: the reward has no share left, and the policy forgets what it could do. So the
highest price is in proportion to the share of the window that one batch renews.
"""

import math

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from canary.types import Metrics

Steps = Float[Array, "time env"]

INTEGRAL_GAIN = 0.03
PROPORTIONAL_GAIN = 1.0
LOWEST = -4.0  # log lambda
START = 1.5  # log lambda: safe first, then rich


class Price(eqx.Module):
    """The controller between two updates."""

    log_integral: Float[Array, ""]

    @classmethod
    def at_start(cls) -> "Price":
        return cls(jnp.full((), START))


def highest_price(steps: int, horizon: int, window: int) -> float:
    """300 times the share of the window that a batch of so many steps renews; at least e^2."""
    return max(300 * steps / (horizon * window), math.exp(2))


def next_price(
    price: Price, level: Float[Array, ""], highest: float
) -> tuple[Price, Float[Array, ""]]:
    """The controller and lambda after K was measured as `level`; NaN, no measurement, is no error."""
    bounds = LOWEST, math.log(highest)
    error = jnp.clip(jnp.log(jnp.maximum(level, 1e-6)), -1, 1)
    error = jnp.where(jnp.isfinite(error), error, 0.0)
    log_integral = jnp.clip(price.log_integral + INTEGRAL_GAIN * error, *bounds)
    multiplier = jnp.exp(jnp.clip(log_integral + PROPORTIONAL_GAIN * error, *bounds))
    return Price(log_integral), multiplier


def priced_advantage(
    reward: Steps, cost: Steps, price: Steps | Float[Array, ""]
) -> Float[Array, "time env"]:
    """A of the equation above."""
    return (standardised(reward) - price * standardised(cost)) / (1 + price)


def standardised(advantage: Steps) -> Steps:
    """In units of its deviation; 0 where it does not vary or is not finite."""
    advantage = jnp.where(jnp.isfinite(advantage), advantage, 0)
    centred = advantage - advantage.mean()
    return centred / (jnp.sqrt(jnp.mean(centred**2)) + 1e-8)


def price_metrics(level: Float[Array, ""], multiplier: Float[Array, ""]) -> Metrics:
    return {"multiplier": multiplier, "constraint_level": level}
