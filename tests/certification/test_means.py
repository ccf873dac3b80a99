"""Mean and CVaR constraints: bounds that cover known laws, and verdicts both ways."""

import dataclasses

import numpy as np
import pytest

from canary.certification import tails
from canary.certification.anytime import mean_bounds
from canary.certification.plan import Plan, complete
from canary.certification.verdict import assess, may_stop
from canary.constraints import Constraint, CVaR, Mean
from canary.errors import CanaryError
from certification.test_tails import LAWS, SUPPORT, samples, true_tail_mean
from certification.test_verdict import with_costs as played


@pytest.mark.parametrize("name", LAWS)
def test_bets_cover_the_mean_at_every_look_together(name: str):
    law, count = LAWS[name], 150
    truth, missed = float(SUPPORT @ law), np.zeros(2)
    for costs in samples(law, count, 400):
        found = np.array([mean_bounds(costs[:n], 1.1 * truth, 100.0, 0.9) for n in (50, 150, 400)])
        missed += (found[:, 0] > truth).any(), (found[:, 1] < truth).any()
    assert (missed / count <= 0.1).all()


@pytest.mark.parametrize("name", LAWS)
@pytest.mark.parametrize("share", [0.2, 0.02])
def test_the_lower_bound_on_cvar_covers(name: str, share: float):
    truth = true_tail_mean(LAWS[name], share)
    for episodes in (60, 1000):
        bounds = [
            tails.tail_mean_lower(costs, share, 0.95)
            for costs in samples(LAWS[name], 300, episodes)
        ]
        assert np.mean(np.array(bounds) > truth + 1e-9) <= 0.05


def test_bets_are_sharper_than_the_integrated_survival_function():
    costs = samples(LAWS["geometric"], 1, 2000)[0]
    lower, upper = mean_bounds(costs, 2.0, 100.0, 0.95)
    assert lower < costs.mean() < upper < 1.2 * costs.mean()
    assert tails.tail_mean_upper(costs, 1.0, 100.0, 0.95) > 1.3 * costs.mean()
    assert mean_bounds(np.zeros(0), 2.0, 100.0, 0.95) == (0, 100)


@pytest.mark.parametrize(
    ("constraint", "verdict", "words"),
    [
        (Mean(2.0), "SATISFIED", "With 95% confidence, the mean cost of an episode is at most 1."),
        (Mean(1.5), "UNDECIDED", "(allowed is 1.5, and 2,000 episodes had 1.4"),
        (Mean(1.0), "VIOLATED", "the mean cost of an episode is more than 1."),
        (CVaR(20.0, 0.1), "SATISFIED", "the mean cost of the worst 10% of episodes is at most 9.7"),
        (CVaR(6.5, 0.1), "UNDECIDED", "these episodes cannot tell."),
        (CVaR(4.0, 0.1), "VIOLATED", "cost of the worst 10% of episodes is more than 5.08"),
    ],
)
def test_each_verdict_has_its_sentence(constraint: Constraint, verdict: str, words: str):
    costs = samples(LAWS["geometric"], 1, 2000)[0]
    plan = Plan(early_stop=False, episodes=2000, cost_bound=100.0)
    found = assess(played(costs), plan, constraint)
    assert (found.verdict, found.episodes_needed) == (verdict, None)
    assert found.lower < constraint.measure(costs) < found.upper
    assert words in found.sentence
    assert may_stop(costs, 1, plan, constraint) == (verdict != "UNDECIDED")
    several = assess(played(costs), dataclasses.replace(plan, statements=5), constraint)
    assert several.lower < found.lower < found.upper < several.upper


def test_a_mean_needs_a_largest_cost_and_no_negative_ones():
    with pytest.raises(CanaryError, match="needs the largest cost of a step"):
        complete(Plan(episodes=10), Mean(3.0))
    with pytest.raises(CanaryError, match="An episode cost -1"):
        assess(played(np.array([-1.0, 2.0])), Plan(cost_bound=9.0), CVaR(3.0, 0.1))
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
        assert may_stop(costs, 1, plan, Mean(limit)) == by_bounds
        found.add(by_bounds)
    assert found == {True, False}
    with pytest.raises(CanaryError, match="An episode cost 9"):
        may_stop(np.array([1.0, 9.0]), 1, Plan(episodes=400, cost_bound=3.0), Mean(1.0))
