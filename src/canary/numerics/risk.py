"""Formulas of tail risk: (Conditional) Value-at-Risk, Cantelli's bound, and the paper's guarantees.

Symbols: C the cost of an episode, μ and σ its mean and standard deviation, ℓ the limit, ε the
violation threshold, β = 1/ε - 1, δ the trust-region radius, γ_c the cost discount, α = max_x
|E_{a~π}[A_{π_k}(x, a)]| the largest expected advantage of the new policy. A violation is C > ℓ.
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

    `or_equal` asks for P(C >= ℓ), as for a cost that saturates at the limit: then the answer at
    μ = ℓ, σ = 0 is 1, not 0.
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

    An order statistic: interpolating would allow more than ε · n exceedances.
    """
    valid = jnp.ones(costs.shape, bool) if valid is None else valid
    descending = -jnp.sort(-jnp.where(valid, costs, -jnp.inf))
    # ε · n may fall a rounding error short of a whole number, e.g. 0.29 · 100.
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


def surrogate_error_factor(radius: ArrayLike, discount: ArrayLike) -> Real:
    """K = √(2δ) γ_c / (1 - γ_c)² (th:worst-case-violation): |μ - L_μ| <= K α. Infinite at discount
    1."""
    remaining = 1 - jnp.asarray(discount)
    return jnp.sqrt(2 * jnp.asarray(radius)) * discount / jnp.square(remaining)


def worst_case_cantelli(
    *,
    mean: ArrayLike,
    limit: ArrayLike,
    epsilon: ArrayLike,
    advantage: ArrayLike,
    augmented_advantage: ArrayLike,
    radius: ArrayLike,
    discount: ArrayLike,
) -> Real:
    """Largest B after a nominal step: K (β α̃ + 2|ℓ| α + 2α M / ε), M = |μ_k| + α / (1 - γ_c).

    th:worst-case-violation. `mean` is μ of the old policy, `advantage` is α of the cost,
    `augmented_advantage` α̃ of the augmented cost.
    """
    factor = surrogate_error_factor(radius, discount)
    advantage = jnp.asarray(advantage)
    largest_mean = jnp.abs(jnp.asarray(mean)) + _product(1 / (1 - jnp.asarray(discount)), advantage)
    weight = _beta(epsilon) * augmented_advantage + 2 * jnp.abs(jnp.asarray(limit)) * advantage
    return _product(factor, weight + _product(largest_mean, 2 * advantage / epsilon))


def worst_case_mean(
    limit: ArrayLike, advantage: ArrayLike, radius: ArrayLike, discount: ArrayLike
) -> Real:
    """Largest μ after a nominal or bound-restoring step: ℓ + K α (eq:mean-overshoot, cor:recovery).

    After a mean-restoring step it is μ_k + K α.
    """
    return jnp.asarray(limit) + _product(surrogate_error_factor(radius, discount), advantage)


def excluding_deviation(
    epsilon: ArrayLike, advantage: ArrayLike, radius: ArrayLike, discount: ArrayLike
) -> Real:
    """√β K α: after a nominal or bound-restoring step no policy whose σ is at least this is
    `provably_violating` (cor:recovery)."""
    factor = surrogate_error_factor(radius, discount)
    return jnp.sqrt(_beta(epsilon)) * _product(factor, advantage)


def provably_violating(
    mean: ArrayLike, deviation: ArrayLike, limit: ArrayLike, epsilon: ArrayLike
) -> Bool[Array, "..."]:
    """Whether the moments lie in V = {μ > ℓ + σ / √β}, where P(C > ℓ) > ε for certain
    (cor:recovery)."""
    return jnp.asarray(mean) > limit + deviation / jnp.sqrt(_beta(epsilon))


def _beta(epsilon: ArrayLike) -> Real:
    """β = 1/ε - 1, the squared number of deviations that Cantelli keeps between mean and limit."""
    return 1 / jnp.asarray(epsilon) - 1


def _product(factor: ArrayLike, advantage: ArrayLike) -> Real:
    """factor · advantage; 0 for a zero advantage even if the factor is infinite."""
    advantage = jnp.asarray(advantage)
    return jnp.where(advantage == 0, 0.0, factor * jnp.where(advantage == 0, 1.0, advantage))
