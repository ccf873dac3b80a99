"""Costs in units of the limit: every formula holds with limit 1, and all cost critics are of order
one."""

from jax.typing import ArrayLike
from jaxtyping import Array, Float


def in_limits(amount: Float[Array, "*batch"], limit: ArrayLike) -> Float[Array, "*batch"]:
    """amount / limit, correctly rounded.

    XLA replaces a division by a constant by a product with the constant's rounded reciprocal, and
    then costs and a limit that are both seven times larger would train another policy. A divisor
    that depends on the data is left alone.
    """
    return amount / (limit + 0 * amount)
