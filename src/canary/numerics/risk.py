"""Formulas of tail risk: Cantelli's bound, Value-at-Risk and Conditional Value-at-Risk.

Symbols: C the cost of an episode, μ and σ its mean and standard deviation, ℓ the limit, ε the
violation threshold, β = 1/ε - 1. A violation is C > ℓ.
"""

import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Float

Real = Float[Array, "..."]
Episodes = Float[Array, "episodes"]
Valid = Bool[Array, "episodes"]


def cantelli_value(
    mean: ArrayLike, variance: ArrayLike, limit: ArrayLike, epsilon: ArrayLike
) -> Real:
    """B = (1/ε - 1) σ² - (ℓ - μ)² (eq:chebyshev_constraint). With μ <= ℓ, B <= 0 implies P(C > ℓ)
    <= ε."""
    return jnp.asarray(_beta(epsilon) * variance - jnp.square(jnp.asarray(limit) - mean))


def cantelli_probability(
    mean: ArrayLike, variance: ArrayLike, limit: ArrayLike, *, or_equal: bool = False
) -> Real:
    """The largest P(C > ℓ) that the moments allow: σ² / (σ² + (ℓ - μ)²) for μ < ℓ (eq:cantelli),
    else 1.

    With `or_equal` it bounds P(C >= ℓ), which is needed for a cost that saturates at the limit: at
    μ = ℓ, σ = 0 the result is 1, not 0.
    """
    gap = jnp.asarray(limit) - mean
    variance = jnp.asarray(variance)
    square = jnp.square(gap)
    bound = variance / jnp.where(variance + square > 0, variance + square, 1)
    certain = (gap < 0) | ((gap == 0) & ((variance > 0) | or_equal))
    return jnp.where(certain, 1.0, bound)


def value_at_risk(
    costs: Episodes, epsilon: ArrayLike, valid: Valid | None = None
) -> Float[Array, ""]:
    """VaR_ε = inf{η : P(C > η) <= ε} (eq:strict-var) of the valid episodes; -inf without any.

    It is an order statistic: interpolation would allow more than ε · n exceedances.
    """
    valid = jnp.ones(costs.shape, bool) if valid is None else valid
    descending = -jnp.sort(-jnp.where(valid, costs, -jnp.inf))
    # Rounding can put ε · n below a whole number, e.g. 0.29 · 100.
    rounding = 1 + 4 * jnp.finfo(costs.dtype).eps
    exceedances = jnp.floor(jnp.asarray(epsilon, costs.dtype) * jnp.sum(valid) * rounding).astype(
        int
    )
    return descending[jnp.minimum(exceedances, costs.size - 1)]


def conditional_value_at_risk(
    costs: Episodes, epsilon: ArrayLike, valid: Valid | None = None
) -> Float[Array, ""]:
    """CVaR_ε = min_η η + E[(C - η)⁺] / ε, attained at η = VaR_ε (eq:rockafellar)."""
    valid = jnp.ones(costs.shape, bool) if valid is None else valid
    threshold = value_at_risk(costs, epsilon, valid)
    excess = jnp.sum(jnp.where(valid, jnp.maximum(costs - threshold, 0), 0))
    return threshold + excess / (epsilon * jnp.maximum(jnp.sum(valid), 1))


def violation_rate(
    costs: Episodes, limit: ArrayLike, valid: Valid | None = None
) -> Float[Array, ""]:
    """Fraction of episodes with C > ℓ, strictly (eq:indicator)."""
    valid = jnp.ones(costs.shape, bool) if valid is None else valid
    return jnp.sum((costs > limit) & valid) / jnp.maximum(jnp.sum(valid), 1)


def provably_violating(
    mean: ArrayLike, deviation: ArrayLike, limit: ArrayLike, epsilon: ArrayLike
) -> Bool[Array, "..."]:
    """Whether the moments lie in V = {μ > ℓ + σ / √β}, which implies P(C > ℓ) > ε
    (cor:recovery)."""
    return jnp.asarray(mean) > limit + deviation / jnp.sqrt(_beta(epsilon))


def _beta(epsilon: ArrayLike) -> Real:
    """β = 1/ε - 1: Cantelli's constraint keeps √β deviations between mean and limit."""
    return 1 / jnp.asarray(epsilon) - 1
