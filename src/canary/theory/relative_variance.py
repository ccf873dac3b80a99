"""The paper's constraints in one form, J_C = E[x(tau)] + b <= 0, and the relative variance of their
estimates.

The relative variance is kappa^2[m] = Var[m^] / |m|^2 (eq:relative-variance), in the exact form of
the paper's two lemmas. For N independent episodes, with q the probability of the active event E, R
the relative second moment of one active contribution and r the signal share,

    value      kappa^2 = r^2 (R_x / (q N) - 1/N),   R_x = E[x^2 | E] / E[x | E]^2,       r = |E[x]| / |J_C|    (lem:value)
    gradient   kappa^2 =      R_g / (q N) - 1/N ,   R_g = E[|s x|^2 | E] / |E[s x | E]|^2                      (lem:grad)

Both lie between r^2 (1 - q) / (q N) (R >= 1 by Jensen) and r^2 R / (q N). If R and r are bounded
while q shrinks, kappa^2 = Theta(1 / (q N)): prop:ess.

These estimators use the true mean mu inside Canary's constraint. The plug-in estimators replace it
by the sample mean. With Y = X - mu and W = beta Y^2 + 2 (b - mu) Y the plug-in value
(eq:cantelli-plugin) is

    B^ = mean(W) - (b - mu)^2 - mean(Y)^2 / epsilon

so its bias and variance over N episodes are exact functions of the central moments m_2, m_3, m_4:

    bias      -m_2 / (epsilon N)                                                   (eq:cantelli-remainder)
    variance  Var[W]/N - (2/epsilon) Cov[W, Y^2]/N^2 + (m_4/N^3 + 3 (N-1) m_2^2/N^3 - m_2^2/N^2) / epsilon^2

The plug-in gradient differs at first order (eq:cantelli-grad-perturb): its leading variance is that
of s x - (2/epsilon) (X - mu) E[s X] over N, its bias -(2/epsilon) Cov[X, s X] / N.
"""

from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Bool, Float

from canary.exact.distribution import bounded_variable
from canary.theory.law import ScoredLaw


@dataclass(frozen=True, eq=False)
class SampledConstraint:
    """A constraint value as the mean of a statistic of episodes plus a constant.

    With c_1 = 2 (l - mu / epsilon) and c_2 = 1/epsilon - 1 the constraints of the paper are
    (eq:jc-decomp)

        indicator     x = 1(C > l)                 b = -epsilon              active: C > l       q = p
        CVaR          x = (C - eta)^+ / epsilon    b = eta - l, eta = VaR    active: C > eta     q = P(C > eta)
        mean          x = C                        b = -l                    active: C > 0       q = f
        Cantelli      x = c_1 C + c_2 C^2          b = mu^2 / epsilon - l^2  active: C > 0       q = f
        shaped        the same of X = phi_d(C / l) with l = 1                active: C > d l     q = P(C > d l)

    The expected effective sample size of N episodes is q N. The shaped bound runs from the
    saturated cost (d = 0, q = f) to the indicator (d -> 1, q = p). The paper has q = epsilon for
    CVaR because it assumes no atom at eta (ass:support); in a finite environment q <= epsilon.
    """

    statistic: Float[np.ndarray, "atom"] = field(repr=False)
    """x on every cost of the law."""
    active: Bool[np.ndarray, "atom"] = field(repr=False)
    """The costs of active episodes; x is 0 on all others."""
    offset: float

    def value(self, law: ScoredLaw) -> float:
        """J_C = E[x] + b."""
        return law.mean(self.statistic) + self.offset

    def active_probability(self, law: ScoredLaw) -> float:
        """q, the share of episodes that are active."""
        return float(law.probability[self.active].sum())


def indicator(law: ScoredLaw, limit: float, epsilon: float) -> SampledConstraint:
    """P(C > l) <= epsilon itself (eq:indicator)."""
    violated = law.cost > limit
    return SampledConstraint(violated.astype(float), violated, -epsilon)


def cvar(law: ScoredLaw, limit: float, epsilon: float) -> SampledConstraint:
    """CVaR <= l, with eta held at the quantile of the law (eq:rockafellar)."""
    eta = law.value_at_risk(epsilon)
    excess = np.maximum(law.cost - eta, 0.0)
    return SampledConstraint(excess / epsilon, excess > 0, eta - limit)


def mean(law: ScoredLaw, limit: float, epsilon: float | None = None) -> SampledConstraint:
    """E[C] <= l, Canary's second constraint; it has no epsilon."""
    return SampledConstraint(law.cost, law.cost > 0, -limit)


def cantelli(
    law: ScoredLaw, limit: float, epsilon: float, dead_zone: float | None = None
) -> SampledConstraint:
    """B <= 0 of the cost or of the shaped cost (eq:cantelli-lin), with the true mean in c_1 and b."""
    variable, bound = bounded_variable(law.cost, limit, dead_zone)
    centre = law.mean(variable)
    first, second = 2 * (bound - centre / epsilon), 1 / epsilon - 1
    return SampledConstraint(
        first * variable + second * variable**2, variable > 0, centre**2 / epsilon - bound**2
    )


@dataclass(frozen=True)
class RelativeVariance:
    """The three numbers that determine a relative variance; NaN without a signal."""

    active: float
    """q."""
    ratio: float
    """R_x or R_g."""
    share: float = 1.0
    """r; a gradient has no offset, so its share is 1."""

    def of_batch(self, episodes: int) -> float:
        """kappa^2 of `episodes` independent episodes, exactly."""
        if self.active == 0:
            return self._of_nothing
        return self.share**2 * (self.ratio / self.active - 1) / episodes

    def bounds(self, episodes: int) -> tuple[float, float]:
        """The sandwich of the lemmas around it (eq:value-sandwich, eq:grad-sandwich)."""
        if self.active == 0:
            return self._of_nothing, self._of_nothing
        scale = self.share**2 / (self.active * episodes)
        return (1 - self.active) * scale, self.ratio * scale

    @property
    def _of_nothing(self) -> float:
        """Without active episodes a value has no noise, and a gradient no signal."""
        return 0.0 if self.share == 0 else np.nan


def of_value(constraint: SampledConstraint, law: ScoredLaw) -> RelativeVariance:
    """lem:value."""
    q = constraint.active_probability(law)
    sampled, square = law.mean(constraint.statistic), law.mean(constraint.statistic**2)
    value = constraint.value(law)
    share = abs(sampled) / abs(value) if value else np.inf
    return RelativeVariance(q, q * square / sampled**2 if sampled else np.nan, share)


def of_gradient(constraint: SampledConstraint, law: ScoredLaw) -> RelativeVariance:
    """lem:grad."""
    q = constraint.active_probability(law)
    gradient = law.gradient(constraint.statistic)
    square = float(constraint.statistic**2 @ law.square)
    signal = float(gradient @ gradient)
    return RelativeVariance(q, q * square / signal if signal else np.nan)


@dataclass(frozen=True)
class PlugIn:
    """Bias and variance of a plug-in estimator over N episodes, and the quantity it estimates."""

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
