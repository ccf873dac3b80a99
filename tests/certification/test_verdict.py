"""Verdicts, their sentences, and the correction for choosing among several policies."""

import dataclasses
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom

from canary.certification.certificate import summarise
from canary.certification.plan import Plan, complete, planned_episodes
from canary.certification.verdict import (
    Assessment,
    PlayedEpisodes,
    assess,
    decode_costs,
    encode_costs,
)
from canary.errors import CanaryError
from canary.numerics.statistics import clopper_pearson_upper
from canary.types import Chance

CHANCE = Chance(limit=5.5, epsilon=0.02)


def with_costs(costs: np.ndarray, **how: Any) -> PlayedEpisodes:
    usual: Any = {"method": "fixed", "looks": 1, "interrupted": False}
    means = {"return_mean": 1.0, "length_mean": 10.0}
    return PlayedEpisodes(policy_sha256="0" * 64, costs=encode_costs(costs), **means, **usual | how)


def played(violations: int, episodes: int, **how: Any) -> PlayedEpisodes:
    """Cost 7 is a violation, 5.5 is not."""
    return with_costs(np.repeat([5.5, 7.0], [episodes - violations, violations]), **how)


@settings(deadline=None)
@given(st.lists(st.floats(allow_nan=False, width=32), max_size=30))
def test_costs_come_back_exactly_and_in_order(costs: list[float]):
    assert decode_costs(encode_costs(np.array(costs))).tolist() == costs
    assert encode_costs(np.array([0.0] * 812 + [1.0, 0.0, 0.0, 3.5])) == "812x0 1 2x0 3.5"


@pytest.mark.parametrize(
    ("violations", "episodes", "verdict", "words"),
    [
        (0, 149, "SATISFIED", "With 95% confidence, at most 1.991% of episodes cost more than 5.5"),
        (0, 148, "UNDECIDED", "cannot tell. About 149 would decide"),
        (3, 150, "UNDECIDED", "cannot tell."),  # the rate is epsilon: more would not help
        (20, 200, "VIOLATED", "more than 6.726% of episodes cost more than 5.5"),
        (0, 0, "UNDECIDED", "nothing is known"),
    ],
)
def test_each_verdict_has_its_sentence(violations: int, episodes: int, verdict: str, words: str):
    result = assess(played(violations, episodes), Plan(early_stop=False), CHANCE)
    assert (result.verdict, result.episodes, result.violations) == (verdict, episodes, violations)
    assert words in result.sentence
    assert result.sentence.endswith(".")


def test_the_verdict_agrees_with_the_bound_on_value_at_risk():
    """P <= epsilon is certified exactly when VaR <= limit is."""
    for method in ("fixed", "anytime"):
        for violations in range(12):
            result = assess(played(violations, 600, method=method), Plan(early_stop=False), CHANCE)
            upper = result.value_at_risk_upper
            assert (result.verdict == "SATISFIED") == (upper is not None and upper <= 5.5)


def test_bounds_on_means_need_a_largest_cost():
    without = assess(played(2, 600), Plan(), CHANCE)
    assert without.mean_upper is None
    assert without.conditional_value_at_risk_upper is None
    given = assess(played(2, 600), Plan(cost_bound=20.0), CHANCE)
    assert given.mean_upper is not None
    assert given.mean is not None
    assert given.mean < given.mean_upper < 7.0
    # More looks spend more of the confidence.
    later = assess(played(2, 600, method="anytime", looks=9), Plan(cost_bound=20.0), CHANCE)
    assert later.mean_upper is not None
    assert later.mean_upper > given.mean_upper
    with pytest.raises(CanaryError, match="An episode cost 7"):
        assess(played(2, 600), Plan(cost_bound=6.5), CHANCE)


def test_more_statements_need_more_played():
    alone, many = Plan(early_stop=False), Plan(early_stop=False, statements=10)
    one, ten = (assess(played(0, 160), plan, CHANCE) for plan in (alone, many))
    assert (one.verdict, ten.verdict) == ("SATISFIED", "UNDECIDED")
    assert ten.upper == pytest.approx(clopper_pearson_upper(0, 160, 0.995))
    assert "in all 10 statements together" in ten.sentence


def whole(*each: Assessment, plan: Plan) -> tuple[str, str]:
    """The verdict on the policies of seeds 4, 5, ..."""
    results = [
        {"seed": 4 + index, "changes": {}, "assessment": dataclasses.asdict(one)}
        for index, one in enumerate(each)
    ]
    return summarise(results, plan, CHANCE)


def test_the_whole_is_satisfied_if_all_are_and_violated_if_any_is():
    plan = Plan(early_stop=False, statements=3)
    good, bad, open_ = (assess(played(k, 1000), plan, CHANCE) for k in (2, 60, 18))
    assert (good.verdict, bad.verdict, open_.verdict) == ("SATISFIED", "VIOLATED", "UNDECIDED")
    assert whole(good, good, good, plan=plan)[0] == "SATISFIED"
    assert whole(good, open_, good, plan=plan)[0] == "UNDECIDED"
    verdict, sentence = whole(good, bad, open_, plan=plan)
    assert verdict == "VIOLATED"
    assert "seeds 5: VIOLATED; seeds 6: UNDECIDED; seeds 4: SATISFIED." in sentence
    assert whole(bad, plan=plan) == ("VIOLATED", bad.sentence)


def test_plans_are_completed_from_epsilon():
    fixed = complete(Plan(early_stop=False), CHANCE)
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
    """Three steps of 0.1 are float32's 0.3, which is above the 0.3 of a Python float: no violation
    of 0.3."""
    cost = float(np.float32(0.1) + np.float32(0.1) + np.float32(0.1))
    assert cost > 0.3
    one = dataclasses.replace(played(0, 10), costs=f"10x{cost!r}")
    assert assess(one, Plan(early_stop=False), Chance(limit=0.3, epsilon=0.5)).violations == 0
    assert assess(one, Plan(early_stop=False), Chance(limit=0.29999, epsilon=0.5)).violations == 10
