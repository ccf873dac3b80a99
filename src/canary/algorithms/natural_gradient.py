"""Natural gradients: H^-1 v for the gradients v of a batch, where H is the damped Hessian of the
mean KL divergence."""

from collections.abc import Callable

import equinox as eqx
import jax
from jaxtyping import Array, Float

from canary.algorithms.surrogates import Parameters, Surrogates
from canary.networks import Distribution
from canary.numerics.conjugate_gradient import Product, conjugate_gradient


class NaturalGradients(eqx.Module):
    """H^-1 v for several v, and their inner products in the H^-1 metric."""

    directions: Float[Array, "vector params"]
    gram: Float[Array, "vector vector"]
    residual: Float[Array, ""]
    """Largest relative residual of the conjugate gradients."""


def natural_gradients(
    product: Product, gradients: Float[Array, "vector params"], *, iterations: int, tolerance: float
) -> NaturalGradients:
    """All of them at once: one batched product serves every vector."""
    found = jax.vmap(
        lambda v: conjugate_gradient(product, v, iterations=iterations, tolerance=tolerance)
    )(gradients)
    gram = found.solution @ found.image.T
    return NaturalGradients(found.solution, 0.5 * (gram + gram.T), found.residual_norm.max())


def curvature(surrogates: Surrogates, theta: Parameters, damping: float) -> Product:
    """v -> H v.

    A state's weight is the mean of the two in which the KL divergence is bounded: 1, and g_t over
    its mean.
    """
    inputs, weight = surrogates.inputs, surrogates.samples.weight
    weights = inputs.row_weights(0.5 * (1 + weight / weight.mean()))
    return fisher_product(
        lambda theta: surrogates.policy_at(theta)(inputs.rows), theta, weights, damping
    )


def fisher_product(
    distribution: Callable[[Parameters], Distribution],
    theta: Parameters,
    weights: Float[Array, "row"],
    damping: float,
) -> Product:
    """v -> (J' M J + damping) v: M is the Hessian of the mean KL in the distribution's own few
    numbers, J the network.

    The network is linearised once, and every product reuses its activations: no second-order
    differentiation of it.
    """
    old, push = jax.linearize(distribution, theta)
    pull = jax.linear_transpose(push, theta)

    def mean_kl(new: Distribution) -> Float[Array, ""]:
        return new.kl_from(old) @ weights

    def product(vector: Parameters) -> Parameters:
        _, curved = jax.jvp(jax.grad(mean_kl), (old,), (push(vector),))
        return pull(curved)[0] + damping * vector

    return product
