"""Canary's bound, price of a unit of cost and local advantage against small problems in which every
episode can be listed."""

from dataclasses import replace
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from canary.algorithms.advantages import Batch, cost_advantages
from canary.algorithms.base import EstimationConfig
from canary.algorithms.canary import (
    LOCAL_UNIT,
    CanaryConfig,
    aim,
    cantelli_penalty,
    shaped_bound,
    tightening,
)
from canary.algorithms.priced import Price, priced_objective
from canary.numerics.costs import EpisodeWindow, empty_window, record_episodes, shaped
from canary.types import EpisodeEnds
from problems.breach_truth import Law
from problems.probe_mdps import (
    EPSILON,
    LIMIT,
    ROOT,
    TABLE,
    Truth,
    copies,
    population,
    softmax,
)
from problems.rollouts import make_rollout
from problems.terms import make_terms

ALL = 1


def window_of(costs) -> EpisodeWindow:
    """A window in which exactly these episodes are recent."""
    costs, count = jnp.asarray(costs), jnp.asarray(len(costs), jnp.int32)
    return EpisodeWindow(costs, costs, jnp.ones_like(costs), count, count)


# --- the bound ---

costs = st.one_of(st.floats(0, 3), st.sampled_from([0.0, 0.5, 1.0, 1.0 + 1e-9, 2.0]))
bound_of = jax.jit(lambda c, d: shaped_bound(window_of(c), ALL, jnp.asarray(1.0), d))


@settings(deadline=None, max_examples=100)
@given(st.lists(costs, min_size=20, max_size=20), st.floats(0, 0.99))
def test_the_bound_holds_for_every_law(sample, dead_zone):
    with jax.enable_x64(True):
        bound = float(bound_of(np.array(sample), dead_zone))
    assert np.mean(np.array(sample) > 1) <= bound + 1e-9 <= 1 + 2e-9


# --- a limit that tightens ---


def scale_of(costs, epsilon=0.02):
    terms = make_terms(2.0, epsilon)
    return float(tightening(window_of(2.0 * np.asarray(costs, np.float32)), ALL, terms))


def test_the_limit_is_itself_while_most_episodes_are_below_it():
    assert scale_of(np.linspace(0, 1, 100)) == 1
    assert scale_of([0.5] * 96 + [9.0] * 4) == 1  # the tail is what the bound is for
    empty = empty_window(10)
    assert float(tightening(empty, ALL, make_terms(2.0, 0.02))) == 1


@pytest.mark.parametrize("above", [2.0, 30.0])
def test_a_shaped_cost_far_above_the_limit_is_not_saturated(above):
    costs = above * np.linspace(0.5, 1.5, 100)
    assert (shaped(costs, 0.3) == 1).mean() > 0.4
    scaled = shaped(costs * scale_of(costs), 0.3)
    assert 0.05 <= (scaled == 1).mean() <= 0.25
    assert scale_of(costs) <= 1


@pytest.mark.parametrize("epsilon", [0.02, 0.3])
def test_a_limit_that_is_not_reached_yet_never_looks_met(epsilon):
    """All episodes violate, few of them by much: the price must not fall."""
    sample = 2.0 * np.array([1.2] * 94 + [2.0] * 6)
    terms = make_terms(2.0, epsilon)
    scale = tightening(window_of(sample), ALL, terms)
    bound = shaped_bound(window_of(sample), ALL, terms.limit / scale, 0.6)
    assert float(bound) >= epsilon


# --- what the policy follows, with exact critics ---


def objective_of(rollout, window, local, ahead, *, dead_zone, decay):
    """Canary's objective of a batch without rewards; critics are pairs (here, after)."""
    estimation = EstimationConfig(gae_lambda=decay, window=1)
    config = CanaryConfig(estimation=estimation, dead_zone=dead_zone, local_discount=1.0)
    nothing = jnp.zeros_like(rollout.cost)
    local = [value / LOCAL_UNIT for value in local]
    values, next_values = (jnp.stack([nothing, *each]) for each in zip(local, ahead, strict=True))
    batch = Batch(rollout, (nothing, nothing), values, next_values, window)
    objective = priced_objective([cantelli_penalty(config, 1)], 1, estimation.window)
    found = objective(batch, make_terms(LIMIT, EPSILON), Price(jnp.full((), 0.5)))
    return replace(found, targets=found.targets.at[1].multiply(LOCAL_UNIT))


def scale_by_hand(costs):
    """1 / L from equally likely costs in limits; a share epsilon may exceed the quantile."""
    high = np.sort(costs)[-1 - int(EPSILON * len(costs))]
    return 1 / max(1, 0.9 * high)


def prices(found, weight):
    """p(x) = lambda w(x) / max(rms(w), sqrt(epsilon / 3))."""
    typical = max(np.sqrt(np.mean(weight**2)), np.sqrt(EPSILON / 3))
    return float(found.metrics["multiplier"]) * weight / typical


@pytest.mark.parametrize("dead_zone", [0.0, 0.7])
def test_weight_and_local_advantage_are_those_of_the_enumerated_process(dead_zone):
    """w(x) = E[X | x], and over the copies of (x, a) the mean effect is A^c(x, a)."""
    truth, law, chance = Truth(TABLE, 1.0), Law(TABLE, 1.0), softmax(TABLE)
    scale = scale_by_hand(law.quantiles(ROOT))
    assert scale < 1

    def phi(spent):
        return shaped(np.asarray(spent) * scale, dead_zone)

    def weight(node, spent):
        return sum(chance * phi(spent + cost) for cost, chance in law.to_come(node).items())

    with jax.enable_x64(True):
        rollout, nodes, afters = population(1.0)
        window = record_episodes(empty_window(rollout.done.size), rollout.episodes)
        ends = np.asarray(rollout.spent + rollout.cost)[:, 0]
        places = [(node, node.spent) for node in nodes], [*zip(afters, ends, strict=True)]
        local, ahead = (
            [jnp.asarray([critic(*place) for place in some])[:, None] for some in places]
            for critic in (
                lambda node, spent: truth.remaining(node)[0],
                lambda node, spent: weight(node, spent) - phi(spent),
            )
        )
        found = objective_of(rollout, window, local, ahead, dead_zone=dead_zone, decay=0.0)
    effect = np.asarray(rollout.cost + local[1] - local[0])
    price = prices(found, np.array([weight(*place) for place in places[0]])[:, None])
    followed = -price / (1 + price) * (effect - effect.mean()) / effect.std()
    np.testing.assert_allclose(found.advantage, followed, rtol=1e-6, atol=1e-9)
    assert float(found.metrics["tightening"]) == pytest.approx(1 / scale)
    actions, targets = np.asarray(rollout.action)[:, 0], np.asarray(found.targets)
    for node, here in copies(nodes).items():
        value = [
            np.mean([cost + truth.remaining(after)[0] for cost, after in node.outcomes(a, 1.0)])
            for a in (0, 1)
        ]
        for a in (0, 1):
            advantage = value[a] - chance[node.cell] @ value
            assert effect[here[actions[here] == a]].mean() == pytest.approx(advantage, abs=1e-12)
        # The truth is a fixed point of both critics.
        exact = [float(critic[0][here[0], 0]) for critic in (local, ahead)]
        np.testing.assert_allclose(targets[1:, here, 0].mean(1), exact, atol=1e-9)


# --- the direction, by finite differences ---

STEPS, BURSTS = 4, np.array([0.0, 0.1, 0.2, 0.6])


@pytest.fixture(scope="module", params=[1.0, 0.33], ids=["some violate", "all below the limit"])
def bursts(request):
    """All 8^4 episodes of a problem whose cost comes in bursts; action 1 adds a little to it.

    An episode is a lane. The policy is uniform, so averages over lanes are expectations, and means
    over the lanes that share an input are the exact critics.
    """
    tickets = np.stack(np.unravel_index(np.arange(8**STEPS), (8,) * STEPS))
    action, burst = tickets % 2, BURSTS[tickets // 2]
    extra = 0.04 * np.array([1, 3, 2, 1])[:, None] * (1 + (burst > 0.3))
    cost = request.param * (burst + extra * action)
    spent = np.cumsum(cost, 0) - cost
    large = np.cumsum(burst > 0.3, 0) - (burst > 0.3)
    cell = np.arange(STEPS)[:, None] * 3 + np.minimum(large, 2)
    total = spent[-1] + cost[-1]
    with jax.enable_x64(True):
        last = np.broadcast_to(np.arange(STEPS)[:, None] == STEPS - 1, cost.shape)
        ended, zero = jnp.asarray(last), jnp.zeros(cost.shape)
        ends = EpisodeEnds(
            ended, ended | True, zero, jnp.asarray((spent + cost) * LIMIT), zero.astype(int), ended
        )
        rollout = make_rollout(
            time=STEPS, env=8**STEPS, action=jnp.asarray(action), cost=jnp.asarray(cost),
            spent=jnp.asarray(spent), spent_raw=jnp.asarray(spent * LIMIT), terminated=ended, episodes=ends,
        )  # fmt: skip
        window = record_episodes(empty_window(cost.size), rollout.episodes)
    return SimpleNamespace(
        rollout=rollout, window=window, action=action, cell=cell, spent=spent, total=total
    )


def conditional_mean(case, value):
    """E[value | x_t] of a function of whole episodes: [time, episode]."""
    result = np.empty(case.spent.shape)
    for time in range(STEPS):
        places = np.stack([case.cell[time], np.round(case.spent[time], 9)])
        _, index = np.unique(places, axis=1, return_inverse=True)
        index = index.ravel()
        result[time] = (np.bincount(index, value) / np.bincount(index))[index]
    return result


def pair(values, end):
    """A critic before and after every step."""
    return jnp.asarray(values), jnp.asarray(np.concatenate([values[1:], [end]]))


def policy_gradient(case, advantage):
    """E[sum_t A_t d log pi(a_t) / d logit] for the logit of action 1 in every cell."""
    score = (case.action - 0.5) * np.asarray(advantage)
    return np.bincount(case.cell.ravel(), score.ravel(), 3 * STEPS) / len(case.total)


def true_gradient(case, value, h=1e-4):
    """d E[value] / d logits by central differences, from the probability of every episode."""

    def mean(logits):
        log_odds = logits[case.cell]
        log_prob = np.where(case.action == 1, log_odds, 0) - np.log1p(np.exp(log_odds))
        return np.exp(log_prob.sum(0)) @ value / 4**STEPS

    shifts = h * np.eye(3 * STEPS)
    return np.array([(mean(shift) - mean(-shift)) / (2 * h) for shift in shifts])


@pytest.mark.parametrize("decay", [1.0, 0.0])
def test_of_a_linear_cost_the_effect_alone_is_the_gradient(bursts, decay):
    """psi = phi at d = 0 and costs below the limit: psi' = 1."""
    mean = conditional_mean(bursts, bursts.total) - bursts.spent
    with jax.enable_x64(True):
        effect, _ = cost_advantages(
            bursts.rollout, bursts.rollout.cost, *pair(mean, 0 * mean[0]), discount=1.0, decay=decay
        )
    truth = true_gradient(bursts, bursts.total)
    assert np.abs(truth).max() > 1e-3
    np.testing.assert_allclose(policy_gradient(bursts, effect), truth, rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize("dead_zone", [0.0, 0.4])
def test_price_times_effect_points_along_the_true_gradient(bursts, dead_zone):
    """psi = phi^2. A unit of cost has no price in an episode that will stay in the dead zone."""
    scale = scale_by_hand(bursts.total)
    x, now = (shaped(y * scale, dead_zone) for y in (bursts.total, bursts.spent))
    mean = conditional_mean(bursts, bursts.total) - bursts.spent
    ahead = conditional_mean(bursts, x) - now
    with jax.enable_x64(True):
        found = objective_of(
            bursts.rollout, bursts.window, pair(mean, 0 * x), pair(ahead, 0 * x),
            dead_zone=dead_zone, decay=0.9,
        )  # fmt: skip
    truth = -true_gradient(bursts, x**2)
    price = prices(found, conditional_mean(bursts, x))  # undo the equal say of the states
    gradient = policy_gradient(bursts, np.asarray(found.advantage) * (1 + price))
    cosine = gradient @ truth / np.linalg.norm(gradient) / np.linalg.norm(truth)
    assert np.linalg.norm(truth) > 1e-4
    assert cosine > 0.9


def test_the_aim_is_lower_where_the_window_renews_slowly():
    assert aim(0.04) == pytest.approx(0.72)
    assert aim(0.1) == aim(1.0) == pytest.approx(0.9)
