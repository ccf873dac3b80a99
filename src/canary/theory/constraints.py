"""The constraints of the paper in one form, J_C = E[x(tau)] + b <= 0 (eq:jc-decomp), each with its active event.

    indicator     x = 1(C > l)                 b = -epsilon              active: C > l       q = p
    CVaR          x = (C - eta)^+ / epsilon    b = eta - l, eta = VaR    active: C > eta     q = epsilon
    Cantelli      x = c_1 C + c_2 C^2          b = mu^2 / epsilon - l^2  active: C > 0       q = f
    shaped        the same of X = phi_d(C / l) with l = 1                active: C > d l     q = P(C > d l)
    mean          x = C                        b = -l                    active: C > 0       q = f

with c_1 = 2 (l - mu / epsilon) and c_2 = 1/epsilon - 1. The expected effective sample size of N episodes is q N. The
shaped bound runs from the saturated cost (d = 0) to the indicator (d -> 1), and so does its q from f to p. Where the
law has an atom at eta, as that of a finite environment has, q of CVaR is P(C > eta) <= epsilon (ass:support excludes it).
"""

from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Bool, Float

from canary.exact.distribution import bounded_variable
from canary.theory.law import ScoredLaw


@dataclass(frozen=True, eq=False)
class SampledConstraint:
    """A constraint value as the mean of a statistic of single episodes plus a number that no batch changes."""

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


def cantelli(
    law: ScoredLaw, limit: float, epsilon: float, dead_zone: float | None = None
) -> SampledConstraint:
    """B <= 0 of the cost, or of the shaped cost (eq:cantelli-lin), with the true mean inside c_1 and b."""
    variable, bound = bounded_variable(law.cost, limit, dead_zone)
    mean = law.mean(variable)
    first, second = 2 * (bound - mean / epsilon), 1 / epsilon - 1
    return SampledConstraint(
        first * variable + second * variable**2, variable > 0, mean**2 / epsilon - bound**2
    )


def mean_cost(law: ScoredLaw, limit: float) -> SampledConstraint:
    """E[C] <= l, which Canary imposes beside the bound."""
    return SampledConstraint(law.cost.astype(float), law.cost > 0, -limit)
