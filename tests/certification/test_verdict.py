"""Plans against brute force, verdicts, their sentences, and the correction for several policies."""

import dataclasses
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom, binomtest

from canary.certification.bounds import mean_bounds
from canary.certification.certificate import Result, decode_costs, encode_costs, summarise
from canary.certification.plan import Plan, complete, planned_episodes
from canary.constraints import Chance, CVaR, Mean
from canary.errors import CanaryError
from canary.numerics.statistics import (
    clopper_pearson_interval,
    clopper_pearson_lower,
    clopper_pearson_upper,
)
from certification.test_bounds import LAWS, samples

CHANCE, FIXED = Chance(limit=5.5, epsilon=0.02), Plan(early_stop=False)


def judged(costs: np.ndarray, plan: Plan, constraint: Any = CHANCE, seed: int = 0) -> Result:
    about = {"seed": seed, "policy_sha256": "0" * 64, "return_mean": 1.0, "length_mean": 10.0}
    return Result(costs=costs, plan=plan, constraint=constraint, **about)


def with_violations(violations: int, episodes: int) -> np.ndarray:
    """Cost 7 is a violation, 5.5 is not."""
    return np.repeat([5.5, 7.0], [episodes - violations, violations])


def test_the_interval_is_scipys():
    for violations, episodes in ((0, 10), (3, 17), (20, 1000), (1000, 1000)):
        expected = binomtest(violations, episodes).proportion_ci(0.9, method="exact")
        low, high = clopper_pearson_interval(violations, episodes, 0.9)
        assert (float(low), float(high)) == pytest.approx((expected.low, expected.high), rel=1e-9)
    assert clopper_pearson_interval(0, 0) == (0.0, 1.0)


@pytest.mark.parametrize("confidence", [0.9, 0.95, 0.999])
@pytest.mark.parametrize("episodes", [1, 30, 149, 400])
def test_coverage_is_exact_for_every_rate(episodes: int, confidence: float):
    rates = np.linspace(0.001, 0.999, 211)[:, None]
    counts = np.arange(episodes + 1)
    chance = binom.pmf(counts, episodes, rates)
    for covers in (
        clopper_pearson_upper(counts, episodes, confidence) >= rates,
        clopper_pearson_lower(counts, episodes, confidence) <= rates,
    ):
        assert (chance * covers).sum(1).min() >= confidence - 1e-9


def test_episodes_without_any_violation():
    """The smallest n with (1 - epsilon)^n <= alpha."""
    assert planned_episodes(0.02, 0.0) == 149
    assert planned_episodes(0.05, 0.0) == 59
    assert planned_episodes(0.01, 0.0, confidence=0.99) == 459
    assert clopper_pearson_upper(0, 149, 0.95) <= 0.02 < clopper_pearson_upper(0, 148, 0.95)


@pytest.mark.parametrize(
    ("epsilon", "rate"),
    [(0.02, 0.01), (0.02, 0.005), (0.02, 0.04), (0.1, 0.07), (0.1, 0.15), (0.5, 0.4), (0.9, 0.99)],
)
def test_plans_are_the_smallest_that_work(epsilon: float, rate: float):
    def power(episodes: int) -> float:
        counts = np.arange(episodes + 1)
        if rate < epsilon:
            decided = clopper_pearson_upper(counts, episodes, 0.95) <= epsilon
        else:
            decided = clopper_pearson_lower(counts, episodes, 0.95) > epsilon
        return float(binom.pmf(counts, episodes, rate) @ decided)

    planned = planned_episodes(epsilon, rate, confidence=0.95)
    assert planned is not None
    assert power(planned) >= 0.9
    assert all(power(episodes) < 0.9 for episodes in range(max(1, planned - 400), planned))


@settings(deadline=None)
@given(st.lists(st.floats(allow_nan=False, width=32), max_size=30))
def test_costs_come_back_exactly_and_in_order(costs: list[float]):
    assert decode_costs(encode_costs(np.array(costs))).tolist() == costs
    assert encode_costs(np.array([0.0] * 812 + [1.0, 0.0, 0.0, 3.5])) == "812x0 1 2x0 3.5"


@pytest.mark.parametrize(
    ("violations", "episodes", "verdict", "words"),
    [
        (0, 149, "SATISFIED", "With 95% confidence, the share of episodes with cost > 5.5 is at most 1.991%"),
        (0, 148, "UNDECIDED", "is between 0% and 2.004%"),
        (0, 148, "UNDECIDED", "cannot tell. About 149 would decide"),
        (3, 150, "UNDECIDED", "cannot tell."),  # the rate is epsilon: more would not help
        (20, 200, "VIOLATED", "is more than 6.726%"),
        (0, 0, "UNDECIDED", "nothing is known"),
    ],
)  # fmt: skip
def test_each_verdict_has_its_sentence(violations: int, episodes: int, verdict: str, words: str):
    result = judged(with_violations(violations, episodes), FIXED)
    assert (result.verdict, result.episodes, result.violations) == (verdict, episodes, violations)
    assert words in result.sentence
    assert result.sentence.endswith(".")


def test_the_verdict_agrees_with_the_bound_on_value_at_risk():
    """P <= epsilon is certified exactly when VaR <= limit is."""
    for plan in (FIXED, Plan()):
        for violations in range(12):
            result = judged(with_violations(violations, 600), plan)
            _, upper = result.value_at_risk
            assert (result.verdict == "SATISFIED") == (upper is not None and upper <= 5.5)


def test_bounds_on_means_need_a_largest_cost():
    costs = with_violations(2, 600)
    without = judged(costs, FIXED)
    assert (without.mean_upper, without.conditional_value_at_risk_upper) == (None, None)
    given = judged(costs, Plan(early_stop=False, cost_bound=20.0))
    assert given.mean_upper is not None
    assert costs.mean() == given.mean < given.mean_upper < 7.0
    # More looks spend more of the confidence, also if a fixed plan was interrupted
    for plan in (Plan(cost_bound=20.0), Plan(early_stop=False, episodes=700, cost_bound=20.0)):
        later = judged(costs, dataclasses.replace(plan, batch=60))
        assert later.mean_upper is not None
        assert later.mean_upper > given.mean_upper
    with pytest.raises(CanaryError, match=r"An episode cost 7, .* between -inf and 6\.5"):
        judged(costs, Plan(cost_bound=6.5))


def test_more_statements_need_more_episodes():
    plans = FIXED, Plan(early_stop=False, statements=10)
    one, ten = (judged(with_violations(0, 160), plan) for plan in plans)
    assert (one.verdict, ten.verdict) == ("SATISFIED", "UNDECIDED")
    assert ten.upper == pytest.approx(clopper_pearson_upper(0, 160, 0.995))
    assert "in all 10 statements together" in ten.sentence


def test_the_whole_is_satisfied_if_all_are_and_violated_if_any_is():
    plan = Plan(early_stop=False, statements=3)

    def whole(*violations: int) -> tuple[str, str]:
        """The verdict on the policies of seeds 4, 5, ..."""
        each = [
            judged(with_violations(k, 1000), plan, seed=4 + i) for i, k in enumerate(violations)
        ]
        return summarise(each, plan, CHANCE)

    assert whole(2, 2, 2)[0] == "SATISFIED"
    assert whole(2, 18, 2)[0] == "UNDECIDED"
    verdict, sentence = whole(2, 60, 18)
    assert verdict == "VIOLATED"
    assert "seeds 5: VIOLATED; seeds 6: UNDECIDED; seeds 4: SATISFIED." in sentence
    assert whole(60) == ("VIOLATED", judged(with_violations(60, 1000), plan).sentence)


def test_plans_are_completed_from_epsilon():
    fixed = complete(FIXED, CHANCE)
    assert fixed.episodes == planned_episodes(0.02, 0.01) == 1271
    assert complete(Plan(), CHANCE).episodes == 2 * 1271
    several = complete(Plan(early_stop=False, statements=4), CHANCE)
    assert several.episodes is not None
    assert several.episodes > fixed.episodes
    assert complete(Plan(episodes=77), CHANCE).episodes == 77
    # Such a plan does what it says: P = epsilon / 2 gets its verdict with probability 0.9.
    decided = clopper_pearson_upper(np.arange(1272), 1271, 0.95) <= 0.02
    assert binom.pmf(np.arange(1272), 1271, 0.01) @ decided >= 0.9
    with pytest.raises(CanaryError, match="too many episodes"):
        complete(Plan(), dataclasses.replace(CHANCE, epsilon=1e-6))


def test_costs_are_compared_with_the_limit_in_the_precision_in_which_they_are_added():
    """Three steps of 0.1 are float32's 0.3, which is above a Python float's: no violation."""
    cost = float(np.float32(0.1) + np.float32(0.1) + np.float32(0.1))
    assert cost > 0.3
    assert judged(np.full(10, cost), FIXED, Chance(limit=0.3, epsilon=0.5)).violations == 0
    assert judged(np.full(10, cost), FIXED, Chance(limit=0.29999, epsilon=0.5)).violations == 10


@pytest.mark.parametrize(
    ("constraint", "verdict", "words"),
    [
        (Mean(2.0), "SATISFIED", "With 95% confidence, the mean cost of an episode is at most 1."),
        (Mean(1.5), "UNDECIDED", "allowed is 1.5, seen was 1.4"),
        (Mean(1.0), "VIOLATED", "the mean cost of an episode is more than 1."),
        (CVaR(20.0, 0.1), "SATISFIED", "the mean cost of the worst 10% of episodes is at most 9.7"),
        (CVaR(6.5, 0.1), "UNDECIDED", "These episodes cannot tell."),
        (CVaR(4.0, 0.1), "VIOLATED", "cost of the worst 10% of episodes is more than 5.08"),
    ],
)
def test_each_verdict_about_a_mean_has_its_sentence(constraint, verdict, words):
    costs = samples(LAWS["geometric"], 1, 2000)[0]
    plan = Plan(early_stop=False, episodes=2000, cost_bound=100.0)
    found = judged(costs, plan, constraint)
    assert (found.verdict, found.episodes_needed) == (verdict, None)
    assert found.lower < constraint.measure(costs) < found.upper
    assert words in found.sentence
    assert found.is_decided() == (verdict != "UNDECIDED")
    several = judged(costs, dataclasses.replace(plan, statements=5), constraint)
    assert several.lower < found.lower < found.upper < several.upper


def test_a_mean_needs_a_largest_cost_and_no_negative_ones():
    with pytest.raises(CanaryError, match="needs the largest cost of a step"):
        complete(Plan(episodes=10), Mean(3.0))
    with pytest.raises(CanaryError, match="An episode cost -1"):
        judged(np.array([-1.0, 2.0]), Plan(cost_bound=9.0), CVaR(3.0, 0.1))
    assert complete(Plan(cost_bound=3.0), Mean(3.0)).episodes == 1000
    assert complete(Plan(cost_bound=200.0), CVaR(5.0, 0.05)).episodes == 19_173


def test_a_test_stops_where_its_bounds_would_have_let_it():
    random, found = np.random.default_rng(5), set()
    for _ in range(300):
        bound, limit = float(random.choice([3.0, 50.0])), random.uniform(0.2, 4)
        costs = random.geometric(random.uniform(0.2, 0.9), int(random.integers(0, 400))) - 1.0
        costs, plan = np.minimum(costs, bound), Plan(episodes=400, cost_bound=bound)
        lower, upper = mean_bounds(costs, limit, bound, plan.confidence)
        by_bounds = upper <= limit or lower > limit
        assert judged(costs, plan, Mean(limit)).is_decided() == by_bounds
        found.add(by_bounds)
    assert found == {True, False}
