"""The law of cost and score against a walk through every episode, and against differences."""

import numpy as np
import pytest
from scipy.special import softmax

from canary.environments.icy_lake import IcyLake
from canary.errors import CanaryError
from canary.exact import cost_law, from_environment
from canary.theory import cantelli, cvar, indicator, scored_law, with_violation
from theory.episodes import EPSILON, LIMIT, LOGITS, MDP, enumerated

CHANCES = softmax(LOGITS, -1)
EXACT = scored_law(MDP, CHANCES)


def test_dynamic_programming_finds_what_a_walk_through_every_episode_finds():
    walked = enumerated()
    for cost in EXACT.support:
        here, there = EXACT.support == cost, walked.support == cost
        for name in ("probabilities", "score", "square"):
            assert getattr(EXACT, name)[here].sum(0) == pytest.approx(
                getattr(walked, name)[there].sum(0), abs=1e-14
            )


def test_the_law_of_the_cost_is_that_of_the_exact_room():
    truth = cost_law(MDP, CHANCES)
    assert pytest.approx(truth.probabilities, abs=1e-14) == EXACT.probabilities


@pytest.mark.parametrize(
    "constraint",
    [
        lambda law: indicator(law, LIMIT, EPSILON),
        lambda law: cantelli(law, LIMIT, EPSILON),
        lambda law: cantelli(law, LIMIT, EPSILON, 0.3),
        lambda law: cvar(law, LIMIT, EPSILON),
    ],
    ids=["indicator", "cantelli", "shaped", "cvar"],
)
def test_the_gradient_is_the_derivative_of_the_constraint_value(constraint):
    """Cantelli's offset depends on the parameters, and its derivative cancels (app:cantelli)."""

    def value(logits):
        return constraint(scored_law(MDP, softmax(logits, -1))).value

    gradient = EXACT.gradient(constraint(EXACT).statistic)
    for index in range(4):
        change = np.zeros(6)
        change[index] = 1e-5
        change = change.reshape(LOGITS.shape)
        slope = (value(LOGITS + change) - value(LOGITS - change)) / 2e-5
        assert gradient[index] == pytest.approx(slope, rel=1e-5, abs=1e-8)


def test_a_soft_policy_is_found_for_every_violation_probability():
    lake = from_environment(IcyLake(horizon=30))
    found = with_violation(lake, 5.5, 0.01)
    assert cost_law(lake, found).violation(5.5) == pytest.approx(0.01, rel=1e-5)
    assert found.sum(1) == pytest.approx(1)
    for impossible in (0.999, 1e-300):
        with pytest.raises(CanaryError, match="No soft policy"):
            with_violation(lake, 5.5, impossible)
