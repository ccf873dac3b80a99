"""Constraints as records: what they measure, what they refuse, and how they are stored."""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from canary.algorithms import ALGORITHMS
from canary.config.config import make_config
from canary.constraints import CONSTRAINTS, Chance, CVaR, Mean
from canary.errors import CanaryError
from canary.numerics.risk import conditional_value_at_risk
from canary.numerics.statistics import measurement

COSTS = np.array([0.0, 1.0, 2.0, 3.0, 10.0])


def test_each_measures_what_it_limits():
    assert Chance(2.0, 0.1).measure(COSTS) == pytest.approx(2 / 5)
    assert Mean(2.0).measure(COSTS) == pytest.approx(3.2)
    assert CVaR(2.0, 0.4).measure(COSTS) == pytest.approx(6.5)
    assert CVaR(2.0, 0.3).measure(COSTS) == pytest.approx((10 + 0.5 * 3) / 1.5)
    assert Chance(2.0, 0.1).measure(np.array([np.nan])) == 1.0


@pytest.mark.parametrize("epsilon", [0.05, 0.29, 0.5, 0.999])
def test_tail_mean_is_the_one_that_training_computes(epsilon):
    costs = np.random.default_rng(3).exponential(size=100)
    trained = conditional_value_at_risk(jnp.asarray(costs), epsilon)
    assert CVaR(1.0, epsilon).measure(costs) == pytest.approx(float(trained), rel=1e-5)


def test_intervals_are_exact_for_chances_and_normal_for_means():
    chance = measurement(Chance(2.0, 0.1), COSTS)
    exact = stats.binomtest(2, 5).proportion_ci(0.95, method="exact")
    assert chance == pytest.approx((0.4, exact.low, exact.high))
    half = 1.959964 * COSTS.std() / np.sqrt(5)
    assert measurement(Mean(2.0), COSTS) == pytest.approx((3.2, 3.2 - half, 3.2 + half))
    assert measurement(Mean(2.0), COSTS[:0]) is None


def test_numbers_of_numpy_are_numbers_and_others_are_refused_in_words():
    assert Chance(limit=np.float32(5.5), epsilon=np.float64(0.5)) == Chance(5.5, 0.5)
    assert isinstance(Mean(np.int64(3)).limit, float)
    words = {"x": "number", None: "number", True: "number", (1.0,): "number", -1: "at least"}
    for wrong, word in words.items():
        with pytest.raises(CanaryError, match=word):
            Mean(wrong)
    with pytest.raises(CanaryError, match="between 0 and 1"):
        CVaR(5.0, 1.0)


# --- which algorithm serves which ---


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("kind", CONSTRAINTS)
def test_an_algorithm_trains_under_what_it_serves_and_says_so_otherwise(algorithm, kind):
    said = {"kind": kind}
    if kind in ALGORITHMS[algorithm].serves:
        assert make_config("IcyLake", algorithm, said).constraint.kind == kind
    else:
        with pytest.raises(CanaryError, match=f"{algorithm} cannot train under a {kind}"):
            make_config("IcyLake", algorithm, said)
