"""Bounds on VaR, CVaR and the mean cover the truth of known distributions, at fixed and at chosen
sample sizes.
"""

import numpy as np
import pytest

from canary.certification import tails
from canary.certification.anytime import anytime_upper
from canary.numerics.statistics import clopper_pearson_lower, clopper_pearson_upper

# Discrete laws on [0, 100]: exact VaR and CVaR are sums. One is like a lake, one is rare and large,
# one nearly continuous.
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
        upper = tails.value_at_risk_bound(costs, epsilon, 0.95, clopper_pearson_upper)
        lower = tails.value_at_risk_bound(costs, epsilon, 0.95, clopper_pearson_lower)
        assert upper is not None
        assert lower is not None
        assert lower <= upper
        upper_missed += upper < truth
        lower_missed += lower > truth
    assert upper_missed / count <= 0.05 + slack
    assert lower_missed / count <= 0.05 + slack


def test_value_at_risk_covers_when_the_sample_size_is_chosen_to_deceive():
    """Stop at whichever of many looks shows the smallest upper bound: only the anytime bound
    survives."""
    law, epsilon, count = LAWS["uniform"], 0.2, 300
    looks = np.unique(np.geomspace(20, 500, 25).astype(int))
    truth = true_var(law, epsilon)
    allowed = {
        bound: [tails.counts_within(bound, int(n), epsilon, 0.95) for n in looks]
        for bound in (anytime_upper, clopper_pearson_upper)
    }
    missed = dict.fromkeys(allowed, 0)
    for costs in samples(law, count, 500):
        for bound, ranks in allowed.items():
            found = [np.sort(costs[:n])[n - k] for n, k in zip(looks, ranks, strict=True) if k > 0]
            missed[bound] += min(found) < truth
    assert missed[anytime_upper] / count <= 0.05
    assert missed[clopper_pearson_upper] / count > 0.08


@pytest.mark.parametrize("name", LAWS)
@pytest.mark.parametrize("share", [1.0, 0.1, 0.02])
def test_mean_and_conditional_value_at_risk_cover(name: str, share: float):
    law, count = LAWS[name], 500
    truth = true_tail_mean(law, share)
    for episodes in (60, 1000):
        bounds = [
            tails.tail_mean_upper(costs, share, 100.0, 0.95)
            for costs in samples(law, count, episodes)
        ]
        assert np.mean(np.array(bounds) < truth - 1e-9) <= 0.05
        assert max(bounds) <= 100


def test_too_few_episodes_have_no_bound():
    costs = np.arange(100.0)
    assert tails.value_at_risk_bound(costs, 0.02, 0.95, clopper_pearson_upper) is None
    assert tails.value_at_risk_bound(np.zeros(0), 0.02, 0.95, clopper_pearson_upper) is None
    assert tails.value_at_risk_bound(np.zeros(0), 0.02, 0.95, clopper_pearson_lower) is None
    assert tails.value_at_risk_bound(np.arange(149.0), 0.02, 0.95, clopper_pearson_upper) == 148
    assert tails.tail_mean_upper(np.zeros(0), 1.0, 9.0, 0.95) == 9
