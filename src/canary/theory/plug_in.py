"""The estimators of Canary's constraint that can be computed: the sample mean takes the place of mu
everywhere.

With Y = X - mu, W = beta Y^2 + 2 (b - mu) Y and B^ the plug-in value (eq:cantelli-plugin),

    B^ = mean(W) - (b - mu)^2 - mean(Y)^2 / epsilon

so bias and variance over N independent episodes are exact functions of the first four central
moments m_2, m_3, m_4:

    bias      -m_2 / (epsilon N)                                                                  (eq:cantelli-remainder)
    variance  Var[W]/N - (2/epsilon) Cov[W, Y^2]/N^2 + (m_4/N^3 + 3 (N-1) m_2^2/N^3 - m_2^2/N^2) / epsilon^2

The gradient g^_B = c^_1 m^_1 + c_2 m^_2 differs from the one with the true c_1 at first order
(eq:cantelli-grad-perturb). Its leading variance is that of s x - (2/epsilon) (X - mu) E[s X] over
N, its bias -(2/epsilon) Cov[X, s X] / N.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from canary.exact.distribution import bounded_variable
from canary.theory.law import ScoredLaw
from canary.theory.relative_variance import cantelli


@dataclass(frozen=True)
class PlugIn:
    """Bias and variance of an estimator over N episodes, and the quantity that it estimates."""

    truth: float | Float[np.ndarray, "parameter"]
    bias: float | Float[np.ndarray, "parameter"]
    variance: float

    @property
    def relative_variance(self) -> float:
        """Variance by the square of the truth (eq:relative-variance)."""
        return self.variance / float(np.sum(np.square(self.truth)))


def plug_in_value(
    law: ScoredLaw, limit: float, epsilon: float, episodes: int, dead_zone: float | None = None
) -> PlugIn:
    """B^ of `episodes` independent episodes, exactly."""
    variable, bound = bounded_variable(law.cost, limit, dead_zone)
    mean, beta = law.mean(variable), 1 / epsilon - 1
    y, gap = variable - mean, bound - mean
    second, third, fourth = (law.mean(y**power) for power in (2, 3, 4))
    n = episodes
    linear = law.mean((beta * (y**2 - second) + 2 * gap * y) ** 2) / n
    cross = (beta * (fourth - second**2) + 2 * gap * third) / n**2
    squared_mean = fourth / n**3 + 3 * (n - 1) * second**2 / n**3 - second**2 / n**2
    return PlugIn(
        truth=beta * second - gap**2,
        bias=-second / (epsilon * n),
        variance=linear - 2 * cross / epsilon + squared_mean / epsilon**2,
    )


def plug_in_gradient(
    law: ScoredLaw, limit: float, epsilon: float, episodes: int, dead_zone: float | None = None
) -> PlugIn:
    """g^_B of `episodes` independent episodes: bias exactly, variance to leading order in 1/N."""
    variable, _ = bounded_variable(law.cost, limit, dead_zone)
    statistic = cantelli(law, limit, epsilon, dead_zone).statistic
    y = variable - law.mean(variable)
    truth, first = law.gradient(statistic), law.gradient(variable)
    square = statistic**2 @ law.square  # E|s x|^2
    mixed = law.gradient(statistic * y) @ first  # E[s x (X - mu)] . E[s X]
    spread = law.mean(y**2) * (first @ first)
    variance = square - truth @ truth - 4 / epsilon * mixed + 4 / epsilon**2 * spread
    covariance = law.gradient(variable * y)
    return PlugIn(truth, -2 / epsilon * covariance / episodes, float(variance) / episodes)
