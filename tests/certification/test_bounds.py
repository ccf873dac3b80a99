"""The bounds cover the truth of known laws, at fixed and at chosen numbers of episodes. The anytime
evidence is a supermartingale, correctly inverted, with early verdicts."""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.stats import beta

from canary.certification.bounds import (
    SHAPE,
    anytime_lower,
    anytime_upper,
    log_evidence,
    mean_bounds,
    tail_mean_lower,
    tail_mean_upper,
    value_at_risk_bound,
)
from canary.certification.plan import planned_episodes
from canary.numerics.statistics import clopper_pearson_lower, clopper_pearson_upper

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
def test_the_evidence_is_the_average_over_bets(side, violations, episodes, rate):
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


# Discrete laws on [0, 100], whose exact VaR and CVaR are sums.
SUPPORT = np.arange(101.0)
LAWS = {
    "geometric": 0.6**SUPPORT / (0.6**SUPPORT).sum(),
    "rare": np.where(SUPPORT == 0, 0.985, np.where(SUPPORT == 100, 0.015, 0.0)),
    "uniform": np.full(101, 1 / 101),
}


def true_var(law: np.ndarray, epsilon: float) -> float:
    above = 1 - np.cumsum(law)
    return float(SUPPORT[np.argmax(above <= epsilon + 1e-12)])


def true_tail_mean(law: np.ndarray, share: float) -> float:
    survival = 1 - np.cumsum(law)
    return float(np.minimum(survival, share)[:-1].sum() / share)


def samples(law: np.ndarray, count: int, episodes: int) -> np.ndarray:
    return np.random.default_rng(7).choice(SUPPORT, (count, episodes), p=law)


@pytest.mark.parametrize("name", LAWS)
@pytest.mark.parametrize("epsilon", [0.02, 0.2])
def test_value_at_risk_covers(name: str, epsilon: float):
    law, count = LAWS[name], 600
    truth, slack = true_var(law, epsilon), 4 * np.sqrt(0.05 * 0.95 / count)
    upper_missed = lower_missed = 0
    for costs in samples(law, count, 300):
        upper = value_at_risk_bound(costs, epsilon, 0.95, clopper_pearson_upper)
        lower = value_at_risk_bound(costs, epsilon, 0.95, clopper_pearson_lower)
        assert upper is not None
        assert lower is not None
        assert lower <= upper
        upper_missed += upper < truth
        lower_missed += lower > truth
    assert upper_missed / count <= 0.05 + slack
    assert lower_missed / count <= 0.05 + slack


def test_value_at_risk_covers_when_the_sample_size_is_chosen_to_deceive():
    """Stop at the look with the smallest upper bound: only the anytime bound survives."""
    law, epsilon, count = LAWS["uniform"], 0.2, 300
    looks = np.unique(np.geomspace(20, 500, 25).astype(int))
    truth = true_var(law, epsilon)
    places = {  # of the order statistic, which does not depend on the costs
        bound: [value_at_risk_bound(np.arange(n), epsilon, 0.95, bound) for n in looks]
        for bound in (anytime_upper, clopper_pearson_upper)
    }
    missed = dict.fromkeys(places, 0)
    for costs in samples(law, count, 500):
        for bound, each in places.items():
            pairs = zip(looks, each, strict=True)
            found = [np.sort(costs[:n])[int(k)] for n, k in pairs if k is not None]
            missed[bound] += min(found) < truth
    assert missed[anytime_upper] / count <= 0.05
    assert missed[clopper_pearson_upper] / count > 0.08


@pytest.mark.parametrize("name", LAWS)
@pytest.mark.parametrize("share", [1.0, 0.1, 0.02])
def test_bounds_on_means_of_the_worst_episodes_cover(name: str, share: float):
    law, count = LAWS[name], 400
    truth = true_tail_mean(law, share)
    for episodes in (60, 1000):
        each = samples(law, count, episodes)
        upper = np.array([tail_mean_upper(costs, share, 100.0, 0.95) for costs in each])
        lower = np.array([tail_mean_lower(costs, share, 0.95) for costs in each])
        assert np.mean(upper < truth - 1e-9) <= 0.05
        assert np.mean(lower > truth + 1e-9) <= 0.05
        assert upper.max() <= 100


def test_too_few_episodes_have_no_bound():
    costs = np.arange(100.0)
    assert value_at_risk_bound(costs, 0.02, 0.95, clopper_pearson_upper) is None
    assert value_at_risk_bound(np.zeros(0), 0.02, 0.95, clopper_pearson_upper) is None
    assert value_at_risk_bound(np.zeros(0), 0.02, 0.95, clopper_pearson_lower) is None
    assert value_at_risk_bound(np.arange(149.0), 0.02, 0.95, clopper_pearson_upper) == 148
    assert tail_mean_upper(np.zeros(0), 1.0, 9.0, 0.95) == 9


@pytest.mark.parametrize("name", LAWS)
def test_bets_cover_the_mean_at_every_look_together(name: str):
    law, count = LAWS[name], 150
    truth, missed = float(SUPPORT @ law), np.zeros(2)
    for costs in samples(law, count, 400):
        found = np.array([mean_bounds(costs[:n], 1.1 * truth, 100.0, 0.9) for n in (50, 150, 400)])
        missed += (found[:, 0] > truth).any(), (found[:, 1] < truth).any()
    assert (missed / count <= 0.1).all()


def test_bets_are_sharper_than_the_integrated_survival_function():
    costs = samples(LAWS["geometric"], 1, 2000)[0]
    lower, upper = mean_bounds(costs, 2.0, 100.0, 0.95)
    assert lower < costs.mean() < upper < 1.2 * costs.mean()
    assert tail_mean_upper(costs, 1.0, 100.0, 0.95) > 1.3 * costs.mean()
    assert mean_bounds(np.zeros(0), 2.0, 100.0, 0.95) == (0, 100)
