"""Power laws from a few points; no JAX, so that reports can be rebuilt without it."""

import numpy as np


def fitted_exponent(
    thresholds: np.ndarray, relative_variances: np.ndarray, confidence: float = 0.95
) -> tuple[float, float]:
    """Slope of log kappa^2 over log epsilon by least squares, and the half-width of its Student
    interval.

    -1 is the rate 1 / epsilon, 0 is stable. With fewer than three points there is no interval, and
    the answer is NaN.
    """
    from scipy.special import stdtrit

    with np.errstate(divide="ignore", invalid="ignore"):
        x, y = np.log(thresholds), np.log(relative_variances)
    known = np.isfinite(x) & np.isfinite(y)
    x, y = x[known], y[known]
    if len(x) < 3:
        return np.nan, np.nan
    centred = x - x.mean()
    slope = float(centred @ y / (centred @ centred))
    residual = y - y.mean() - slope * centred
    error = np.sqrt(residual @ residual / (len(x) - 2) / (centred @ centred))
    return slope, float(stdtrit(len(x) - 2, (1 + confidence) / 2) * error)
