"""The constraints of the paper in one form, J_C = E[x(tau)] + b <= 0, and the relative variance of
their estimates.

The relative variance is kappa^2[m] = Var[m^] / |m|^2 (eq:relative-variance), in the exact form of
the paper's two lemmas. For N independent episodes, with q the probability of the active event E, R
the relative second moment of one active contribution and r the signal share,

    value      kappa^2 = r^2 (R_x / (q N) - 1/N),   R_x = E[x^2 | E] / E[x | E]^2,       r = |E[x]| / |J_C|    (lem:value)
    gradient   kappa^2 =      R_g / (q N) - 1/N ,   R_g = E[|s x|^2 | E] / |E[s x | E]|^2                      (lem:grad)

Both lie between r^2 (1 - q) / (q N), which needs no assumption (R >= 1 by Jensen), and r^2 R / (q
N). If R and r keep within constants while q shrinks, kappa^2 = Theta(1 / (q N)): prop:ess.
"""

from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Bool, Float

from canary.exact.distribution import bounded_variable
from canary.theory.law import ScoredLaw


@dataclass(frozen=True, eq=False)
class SampledConstraint:
    """A constraint value as the mean of a statistic of single episodes plus a number that no batch
    changes.

    With c_1 = 2 (l - mu / epsilon) and c_2 = 1/epsilon - 1 the constraints of the paper are
    (eq:jc-decomp)

        indicator     x = 1(C > l)                 b = -epsilon              active: C > l       q = p
        CVaR          x = (C - eta)^+ / epsilon    b = eta - l, eta = VaR    active: C > eta     q = P(C > eta)
        mean          x = C                        b = -l                    active: C > 0       q = f
        Cantelli      x = c_1 C + c_2 C^2          b = mu^2 / epsilon - l^2  active: C > 0       q = f
        shaped        the same of X = phi_d(C / l) with l = 1                active: C > d l     q = P(C > d l)

    The expected effective sample size of N episodes is q N. The shaped bound runs from the
    saturated cost (d = 0) to the indicator (d -> 1), and so does its q from f to p. The paper has q
    = epsilon for CVaR, which ass:support makes true: no atom at eta. Where there is one, as in a
    finite environment, q = P(C > eta) <= epsilon.
    """

    statistic: Float[np.ndarray, "atom"] = field(repr=False)
    """x on every cost of the law."""
    active: Bool[np.ndarray, "atom"] = field(repr=False)
    """The costs of episodes that say something; x is 0 on all others."""
    offset: float

    def value(self, law: ScoredLaw) -> float:
        """J_C = E[x] + b."""
        return law.mean(self.statistic) + self.offset

    def active_probability(self, law: ScoredLaw) -> float:
        """q: the share of a batch that says something."""
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
    """E[C] <= l, Canary's second constraint; no threshold enters, it is there so that all are called
    alike."""
    return SampledConstraint(law.cost, law.cost > 0, -limit)


def cantelli(
    law: ScoredLaw, limit: float, epsilon: float, dead_zone: float | None = None
) -> SampledConstraint:
    """B <= 0 of the cost, or of the shaped cost (eq:cantelli-lin), with the true mean inside c_1
    and b."""
    variable, bound = bounded_variable(law.cost, limit, dead_zone)
    centre = law.mean(variable)
    first, second = 2 * (bound - centre / epsilon), 1 / epsilon - 1
    return SampledConstraint(
        first * variable + second * variable**2, variable > 0, centre**2 / epsilon - bound**2
    )


@dataclass(frozen=True)
class RelativeVariance:
    """The three numbers that a relative variance is made of; not a number where there is no
    signal."""

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
        """Where no episode is active, the sampled part has vanished and its noise with it; a gradient
        is gone."""
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
