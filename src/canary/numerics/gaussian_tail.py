"""How far a Gaussian tail is from the truth (rem:gaussian): the same two moments, another law.

z = (l - mu) / sigma,        P_Gauss = P(N(0, 1) > z),        understatement = P / P_Gauss
"""

import math
from dataclasses import dataclass

from scipy.special import log_ndtr


@dataclass(frozen=True)
class GaussianTail:
    """What a Gaussian with the moments of the cost predicts, beside what happens."""

    deviations: float
    """z: how many deviations the limit lies above the mean; infinite for a cost that does not
    vary."""
    log10_predicted: float
    """log10 of the probability that the Gaussian gives to a violation: it may be too small for a
    float."""
    realised: float

    @property
    def log10_understatement(self) -> float:
        """By how many orders of magnitude the Gaussian understates the violations; -inf if there
        are none."""
        return -math.inf if self.realised == 0 else math.log10(self.realised) - self.log10_predicted


def gaussian_tail(mean: float, deviation: float, limit: float, violation: float) -> GaussianTail:
    """The Gaussian prediction at the moments of a policy whose violation probability is known."""
    if deviation > 0:
        z = (limit - mean) / deviation
    else:
        # The cost equals its mean: a violation if that is one
        z = math.inf if limit >= mean else -math.inf
    return GaussianTail(z, float(log_ndtr(-z)) / math.log(10), violation)
