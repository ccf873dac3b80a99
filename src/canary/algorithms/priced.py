"""The reward minus a price on the constraint: the objective that Canary and PPO-Lagrangian share.

    A = (A^r / sd(A^r) - lambda A^K / sd(A^K)) / (1 + lambda)

K is what the constraint limits, in units of what it allows; A^K is its advantage. Each advantage is
in units of its own deviation, so lambda / (1 + lambda) is the constraint's share of a step, whatever
the units of reward and cost. The price is a proportional-integral controller in logarithms:

    e = clip(log K, -1, 1),    log I <- clip(log I + k_i e),    lambda = exp(clip(log I + k_p e))

The policy integrates what lambda asks for, so the proportional term does most of the work. K lags by
the length of an episode. The cap keeps the integral from growing meanwhile until the reward has no
share left and the policy forgets what it could do.
"""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from canary.types import Metrics

Steps = Float[Array, "time env"]

INTEGRAL_GAIN = 0.03
PROPORTIONAL_GAIN = 1.0
LOG_PRICES = (-4.0, 2.5)  # the reward keeps at least 1 / (1 + e^2.5) = 8% of a step


class Price(eqx.Module):
    """The controller between two updates."""

    log_integral: Float[Array, ""]

    @classmethod
    def at_start(cls) -> "Price":
        return cls(jnp.zeros(()))


def next_price(price: Price, level: Float[Array, ""]) -> tuple[Price, Float[Array, ""]]:
    """The controller and lambda after K was measured as `level`; NaN, no measurement, is no error."""
    error = jnp.clip(jnp.log(jnp.maximum(level, 1e-6)), -1, 1)
    error = jnp.where(jnp.isfinite(error), error, 0.0)
    log_integral = jnp.clip(price.log_integral + INTEGRAL_GAIN * error, *LOG_PRICES)
    multiplier = jnp.exp(jnp.clip(log_integral + PROPORTIONAL_GAIN * error, *LOG_PRICES))
    return Price(log_integral), multiplier


def priced_advantage(
    reward: Steps, constraint: Steps, multiplier: Float[Array, ""]
) -> Float[Array, "time env"]:
    """A of the equation above."""
    return (standardised(reward) - multiplier * standardised(constraint)) / (1 + multiplier)


def standardised(advantage: Steps) -> Steps:
    """In units of its deviation; 0 where it does not vary or is not finite."""
    advantage = jnp.where(jnp.isfinite(advantage), advantage, 0)
    centred = advantage - advantage.mean()
    return centred / (jnp.sqrt(jnp.mean(centred**2)) + 1e-8)


def price_metrics(level: Float[Array, ""], multiplier: Float[Array, ""]) -> Metrics:
    return {"multiplier": multiplier, "constraint_level": level}
