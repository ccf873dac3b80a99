"""Relative variance, kappa^2[m] = Var[m^] / |m|^2 (eq:relative-variance), in the exact form of the paper's two lemmas.

For N independent episodes, with q the probability of the active event E, R the relative second moment of one active
contribution and r the signal share,

    value      kappa^2 = r^2 (R_x / (q N) - 1/N),   R_x = E[x^2 | E] / E[x | E]^2,       r = |E[x]| / |J_C|    (lem:value)
    gradient   kappa^2 =      R_g / (q N) - 1/N ,   R_g = E[|s x|^2 | E] / |E[s x | E]|^2                      (lem:grad)

Both lie between r^2 (1 - q) / (q N), which needs no assumption (R >= 1 by Jensen), and r^2 R / (q N). If R and r keep
within constants while q shrinks, kappa^2 = Theta(1 / (q N)): prop:ess.
"""

from dataclasses import dataclass

import numpy as np

from canary.theory.constraints import SampledConstraint
from canary.theory.law import ScoredLaw


@dataclass(frozen=True)
class RelativeVariance:
    """The three numbers that a relative variance is made of; not a number where there is no signal."""

    active: float
    """q."""
    ratio: float
    """R_x or R_g."""
    share: float = 1.0
    """r; a gradient has no offset, so its share is 1."""

    def of_batch(self, episodes: int) -> float:
        """kappa^2 of `episodes` independent episodes, exactly."""
        if (
            self.active == 0
        ):  # the sampled part has vanished, and its noise with it; a gradient is gone altogether
            return 0.0 if self.share == 0 else np.nan
        return self.share**2 * (self.ratio / self.active - 1) / episodes

    def bounds(self, episodes: int) -> tuple[float, float]:
        """The sandwich of the lemmas around it (eq:value-sandwich, eq:grad-sandwich)."""
        scale = self.share**2 / (self.active * episodes)
        return (1 - self.active) * scale, self.ratio * scale


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
