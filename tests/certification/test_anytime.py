"""The anytime bounds: a supermartingale, correctly inverted, with coverage at all times together,
and early verdicts.
"""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.stats import beta

from canary.certification.anytime import SHAPE, anytime_lower, anytime_upper, log_evidence
from canary.certification.plan import planned_episodes

LOOKS = np.unique(np.geomspace(1, 5000, 80).astype(int))
ENOUGH = np.log(20)  # confidence 0.95
ROUNDING = 1e-4  # of scipy's incomplete beta function, far out in its tail


def paths(rates: np.ndarray, looks: np.ndarray, seed: int) -> np.ndarray:
    """Violations of each policy at each look."""
    steps = np.diff(np.concatenate([[0], looks]))
    return np.random.default_rng(seed).binomial(steps, rates[:, None]).cumsum(1)


@pytest.mark.parametrize("side", ["below", "above"])
@pytest.mark.parametrize(
    ("violations", "episodes", "rate"), [(0, 30, 0.1), (3, 40, 0.1), (9, 25, 0.3), (25, 25, 0.8)]
)
def test_the_evidence_is_the_average_over_bets(
    side: str, violations: int, episodes: int, rate: float
):
    prior = beta(SHAPE, SHAPE * (1 - rate) / rate)
    low, high = (0, rate) if side == "below" else (rate, 1)

    bets = prior.ppf(
        prior.cdf(low) + (prior.cdf(high) - prior.cdf(low)) * (np.arange(200_000) + 0.5) / 200_000
    )
    gain = (bets / rate) ** violations * ((1 - bets) / (1 - rate)) ** (episodes - violations)
    assert log_evidence(violations, episodes, rate, side) == pytest.approx(
        np.log(gain.mean()), abs=1e-3
    )


@given(st.integers(0, 500), st.floats(0, 1), st.floats(1e-4, 0.99), st.floats(0, 1))
@example(482, 0.921875, 0.203125, 0.0)
@example(467, 0.00390625, 0.796875, 0.0)  # an average of 1e-318, which has few digits
@settings(deadline=None)
def test_the_evidence_is_a_supermartingale(episodes: int, share: float, rate: float, where: float):
    """In expectation over the next episode it stays if P is the rate tested, and sinks on the wrong
    side of it.
    """
    violations = round(share * episodes)
    for side, truth in (("below", rate + where * (1 - rate)), ("above", rate * where)):
        now = log_evidence(violations, episodes, rate, side)
        after = log_evidence(np.array([violations, violations + 1]), episodes + 1, rate, side)
        grown = np.exp(after - now) if np.isfinite(now) else np.zeros(2)
        if np.isfinite(now) and np.isfinite(after).all():
            assert (1 - rate) * grown[0] + rate * grown[1] == pytest.approx(1, rel=ROUNDING)
        assert (1 - truth) * grown[0] + truth * grown[1] <= 1 + ROUNDING


@pytest.mark.parametrize("episodes", [1, 20, 300, 4000])
def test_bounds_invert_the_evidence(episodes: int):
    counts = np.unique(np.linspace(0, episodes, 23).astype(int))[:, None]
    upper, lower = anytime_upper(counts, episodes, 0.95), anytime_lower(counts, episodes, 0.95)
    rates = np.concatenate([np.geomspace(1e-6, 0.5, 800), np.linspace(0.5, 1 - 1e-6, 400)])[None]
    margin = 1e-9 * (1 + rates)
    excluded_above = log_evidence(counts, episodes, rates, "below") >= ENOUGH
    assert (excluded_above == (rates >= upper))[np.abs(rates - upper) > margin].all()
    excluded_below = log_evidence(counts, episodes, rates, "above") >= ENOUGH
    assert (excluded_below == (rates <= lower))[np.abs(rates - lower) > margin].all()


def test_coverage_at_all_times_together_over_thousands_of_policies():
    random = np.random.default_rng(1)
    rates = np.concatenate([random.uniform(0.002, 0.1, 1500), random.uniform(0.1, 0.9, 500)])
    counts = paths(rates, LOOKS, 2)
    slack = 4 * np.sqrt(0.05 * 0.95 / rates.size)
    for side in ("below", "above"):
        ever_missed = (log_evidence(counts, LOOKS, rates[:, None], side) >= ENOUGH).any(1)
        assert 0.005 < ever_missed.mean() <= 0.05 + slack


@pytest.mark.parametrize("multiple", [0.0, 0.1, 0.25, 3.0, 5.0])
def test_far_from_epsilon_it_stops_before_the_planned_sample(multiple: float):
    """The plan, without knowledge of P, is that of certify: P = epsilon / 2 is to be found safe
    with power 0.9.
    """
    epsilon, looks = 0.02, np.arange(20, 4000, 20)
    planned = planned_episodes(epsilon, epsilon / 2)
    counts = paths(np.full(400, multiple * epsilon), looks, 4)
    side = "below" if multiple < 1 else "above"
    decided = log_evidence(counts, looks, epsilon, side) >= ENOUGH
    assert decided.any(1).mean() > 0.99
    assert looks[decided.argmax(1)].mean() < 0.5 * planned
