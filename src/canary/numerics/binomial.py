"""The exact (Clopper-Pearson) interval for a probability, from k events in n independent trials.

Of confidence 1 - a, from the a/2 quantile of Beta(k, n - k + 1) to the 1 - a/2 quantile of Beta(k + 1, n -
k). No JAX here: the live display and the reports need it on the host.
"""


def clopper_pearson(events: int, trials: int, confidence: float = 0.95) -> tuple[float, float]:
    """The exact two-sided binomial interval; [0, 1] when there are no trials."""
    from scipy.special import betaincinv  # here, because it takes longer to import than all the rest

    tail, others = (1.0 - confidence) / 2.0, trials - events
    lower = float(betaincinv(events, others + 1, tail)) if events > 0 else 0.0
    upper = float(betaincinv(events + 1, others, 1.0 - tail)) if others > 0 else 1.0
    return lower, upper
