"""How much of a sampled constraint gradient is signal: what two halves of the environments agree
on.

With b = p b_1 + (1 - p) b_2, where b_1 and b_2 are estimates from disjoint environments, E[b_1 .
b_2] is the square of the true gradient in any metric, and

    f = b_1 . b_2 / b . b

is the share of b that is true: a step along -b does f times what b promises. Single measurements
are mostly noise themselves (f is 0.01 on the robots, and scatters by about 0.1), so they are
averaged over updates.
"""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from canary.algorithms.natural_gradient import NaturalGradients, curvature, natural_gradients
from canary.algorithms.surrogates import Surrogates
from canary.algorithms.trust_region_step import StepResult, TrustRegionConfig

MEMORY = 0.95  # of the average over updates


class Signal(eqx.Module):
    """A running mean whose early values are not pulled towards 0."""

    total: Float[Array, ""]
    weight: Float[Array, ""]

    @property
    def share(self) -> Float[Array, ""]:
        """The mean, within [0, 1]; 0 before the first measurement."""
        return jnp.clip(self.total / jnp.maximum(self.weight, 1e-8), 0, 1)

    def averaged_with(self, measured: Float[Array, ""]) -> "Signal":
        known = jnp.isfinite(measured)
        fade = jnp.where(known, MEMORY, 1)
        new = (1 - fade) * jnp.where(known, measured, 0)
        return Signal(fade * self.total + new, fade * self.weight + 1 - fade)


def no_signal() -> Signal:
    return Signal(jnp.zeros(()), jnp.zeros(()))


def measure(
    surrogates: Surrogates, step: StepResult, config: TrustRegionConfig
) -> Float[Array, ""]:
    """f in the H^-1 metric; not a number if there is one environment only, or no gradient."""
    half = surrogates.half_gradient(step.linear.theta)
    product = curvature(surrogates, step.linear.theta, config.fisher_states, config.damping)
    natural_half = natural_gradients(
        product, half[None], iterations=config.cg_iterations, tolerance=config.cg_tolerance
    )
    return shared_part(half, natural_half, step.natural, surrogates.samples.in_half)


def shared_part(
    half: Float[Array, "params"],
    natural_half: NaturalGradients,
    natural: NaturalGradients,
    in_half: Bool[Array, "sample"],
) -> Float[Array, ""]:
    """b_1 . b_2 / b . b from b_1 and b alone: b_2 = (b - p b_1) / (1 - p)."""
    share = in_half.mean()
    with_other = half @ (natural.directions[1] - share * natural_half.directions[0]) / (1 - share)
    square = natural.gram[1, 1]
    return jnp.where(
        (share < 1) & (square > 0), with_other / jnp.where(square > 0, square, 1), jnp.nan
    )
