"""Certifying policies on the lake, against its exact law; stopping and interrupting."""

from dataclasses import replace
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest

from canary.certification.bounds import anytime_upper
from canary.certification.certificate import Result, examine
from canary.certification.certify import certify, gather, make_player
from canary.certification.plan import Plan, complete
from canary.constraints import Chance
from canary.environments.icy_lake import IcyLake
from canary.errors import CanaryError
from canary.exact import from_environment
from canary.exact.run import policy_law
from canary.networks import CategoricalPolicy, make_policy
from canary.rollout import CostAccount

LAKE = IcyLake(horizon=30)
ACCOUNT = CostAccount(limit=5.5, cost_discount=1.0)
KEY = jax.random.key(3)


def network(seed: int = 0) -> CategoricalPolicy:
    """An untrained network whose outputs are scaled up, so that it is far from uniform."""
    policy = make_policy(jax.random.key(seed), LAKE.observation_size + 2, LAKE.action_space, (16,))
    assert isinstance(policy, CategoricalPolicy)
    return eqx.tree_at(lambda p: p.network.weights[-1], policy, policy.network.weights[-1] * 100)


POLICY = network()
LAW = policy_law(LAKE, from_environment(LAKE), ACCOUNT, POLICY)


def chance(limit: float = 5.5, epsilon: float = 0.02) -> Chance:
    return Chance(limit=limit, epsilon=epsilon)


@pytest.fixture(scope="module")
def player():
    """The episodes do not depend on the constraint, so one compiled program serves all tests."""
    return make_player(LAKE, ACCOUNT, Plan(batch=100))


def certified(player, constraint: Chance, plan: Plan, progress=None) -> tuple[Result, bool]:
    """As `certify` does it, without compiling anew; and whether it was interrupted."""
    plan = complete(plan, constraint)
    play = partial(player, POLICY, None, KEY)
    table, interrupted = gather(play, plan, constraint, progress)
    (found,) = examine(table, plan, constraint, policy_sha256="0" * 64)
    return found, interrupted


@pytest.mark.parametrize("early_stop", [False, True])
def test_the_exact_law_lies_within_the_bounds(player, early_stop: bool):
    epsilon = LAW.violation(5.5) + 0.08
    plan = Plan(episodes=3000, early_stop=early_stop, batch=100, cost_bound=30.0, confidence=0.99)
    result, _ = certified(player, chance(epsilon=epsilon), plan)
    assert result.lower <= LAW.violation(5.5) <= result.upper
    assert result.verdict == "SATISFIED"
    lower, upper = result.value_at_risk
    assert lower <= LAW.value_at_risk(epsilon) <= upper
    cvar = LAW.conditional_value_at_risk(epsilon)
    assert cvar <= result.conditional_value_at_risk_upper < LAKE.horizon
    assert LAW.mean <= result.mean_upper < 1.5 * LAW.mean + 1
    assert result.return_mean == pytest.approx(LAW.expected_return, abs=0.1)
    assert result.length_mean == pytest.approx(LAW.expected_length, rel=0.1)
    assert result.episodes % 100 == 0
    assert (result.episodes < 3000) == early_stop


def test_episodes_do_not_depend_on_the_batch(player):
    plan = Plan(episodes=250, early_stop=False, batch=100)
    other = certify(LAKE, ACCOUNT, chance(), POLICY, None, replace(plan, batch=64), key=KEY)
    assert (certified(player, chance(), plan)[0].costs == other.costs).all()


def test_an_interruption_gets_the_valid_verdict_so_far(player):
    def interrupt(episodes: int) -> None:
        if episodes >= 300:
            raise KeyboardInterrupt

    for early_stop in (True, False):
        plan = Plan(episodes=1000, early_stop=early_stop, batch=100)
        wanted = chance(epsilon=LAW.violation(5.5))
        result, interrupted = certified(player, wanted, plan, interrupt)
        assert interrupted
        assert (result.episodes, result.verdict) == (300, "UNDECIDED")
        seen_so_far = result.violations, 300, 0.95
        assert result.upper == pytest.approx(anytime_upper(*seen_so_far))
        assert result.lower < LAW.violation(5.5) < result.upper


def test_an_interruption_before_the_first_episode_leaves_nothing_known():
    def refuse(*_):
        raise KeyboardInterrupt

    result, interrupted = certified(refuse, chance(), Plan())
    assert (interrupted, result.episodes, result.verdict) == (True, 0, "UNDECIDED")
    assert (result.lower, result.upper, result.mean) == (0, 1, None)
    assert "nothing is known" in result.sentence


@pytest.mark.parametrize("number", [jnp.nan, jnp.inf, 1e30])
def test_a_policy_with_non_finite_numbers_gets_no_verdict(number: float):
    weights = POLICY.network.weights[0].at[2, 1].set(number)
    sick = eqx.tree_at(lambda p: p.network.weights[0], POLICY, weights)
    with pytest.raises(CanaryError, match=r"not finite.*policy\.network\.weights\[0\]"):
        certify(LAKE, ACCOUNT, chance(), sick, None, Plan(batch=100), key=KEY)
