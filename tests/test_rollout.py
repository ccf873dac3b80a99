"""Rollouts replayed step by step in plain Python."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from canary.environments.icy_lake import IcyLake
from canary.evaluation import play_episodes
from canary.networks import MLP, GaussianPolicy, make_policy
from canary.numerics.running_statistics import RunningStatistics
from canary.rollout import SPENT_CLIP, CostAccount, collect, start_lanes
from problems.probe_environments import Aim

LIMIT, GAMMA, LANES, LENGTH = 2.5, 0.9, 6, 60
LAKE = IcyLake(horizon=15)


def play(environment, account, statistics=None, *, stagger, length=LENGTH, seed=0):
    """Two rollouts in a row, one after the other, as numpy records: episodes span them."""

    @jax.jit
    def run(key):
        keys = jax.random.split(key, 4)
        size = environment.observation_size + CostAccount.SIZE
        policy = make_policy(keys[0], size, environment.action_space, (8,))
        lanes = first = start_lanes(environment, LANES, keys[1], stagger=stagger)
        lanes, one, raw = collect(environment, account, policy, lanes, statistics, keys[2], length)
        lanes, two, more = collect(environment, account, policy, lanes, statistics, keys[3], length)
        join = jax.tree.map(lambda *leaves: jnp.concatenate(leaves), (one, raw), (two, more))
        return first, *join

    return jax.tree.map(np.asarray, run(jax.random.key(seed)))


@pytest.fixture(scope="module", params=[False, True], ids=["together", "staggered with a clock"])
def icy(request):
    account = CostAccount(LIMIT, GAMMA, clock=LAKE.horizon if request.param else None)
    return request.param, *play(LAKE, account, stagger=request.param)


def test_icy_lake_rollout_replayed(icy):
    """Positions, costs in limits, y_t, g_t or the clock, and episode records of every step."""
    staggered, first, rollout, _ = icy
    tiles = LAKE.observation_size
    here, there = (
        rollout.inputs[..., :tiles].argmax(-1),
        rollout.next_inputs[..., :tiles].argmax(-1),
    )
    ends = {"terminated": 0, "truncated": 0}
    for lane in range(LANES):
        time = int(first.environment.time[lane])
        assert staggered or time == 0
        valid = time == 0
        position, spent, discount, gained, length = LAKE.start, 0.0, 1.0, 0.0, 0
        for t in range(2 * LENGTH):
            at = (t, lane)
            assert here[at] == position
            pace = time / LAKE.horizon if staggered else discount
            np.testing.assert_allclose(rollout.inputs[at][tiles:], [pace, spent / LIMIT], rtol=1e-5)
            np.testing.assert_allclose(
                [rollout.discount[at], rollout.spent[at], rollout.spent_raw[at]],
                [discount, spent / LIMIT, spent],
                rtol=1e-5,
            )
            assert there[at] in LAKE.successors[position, rollout.action[at]]
            position = int(there[at])
            cost, reward = float(LAKE.ice[position]), float(LAKE.goal[position])
            time, length = time + 1, length + 1
            terminated = bool(LAKE.goal[position])
            truncated = not terminated and time == LAKE.horizon
            spent, discount, gained = spent + discount * cost, discount * GAMMA, gained + reward
            np.testing.assert_allclose(
                [rollout.cost[at], rollout.reward[at]], [cost / LIMIT, reward], rtol=1e-6
            )
            assert (rollout.terminated[at], rollout.truncated[at]) == (terminated, truncated)
            # What comes next is seen before any reset.
            pace = time / LAKE.horizon if staggered else discount
            np.testing.assert_allclose(
                rollout.next_inputs[at][tiles:], [pace, spent / LIMIT], rtol=1e-5
            )
            assert rollout.episodes.ended[at] == (terminated or truncated)
            if terminated or truncated:
                ends["terminated" if terminated else "truncated"] += 1
                record = rollout.episodes
                assert (record.length[at], record.terminated[at], record.valid[at]) == (
                    length,
                    terminated,
                    valid,
                )
                np.testing.assert_allclose(
                    [record.reward[at], record.cost[at]], [gained, spent], rtol=1e-5
                )
                position, spent, discount, gained, length = LAKE.start, 0.0, 1.0, 0.0, 0
                time, valid = 0, True
    assert min(ends.values()) > 0
    np.testing.assert_array_equal(rollout.done, rollout.terminated | rollout.truncated)


def test_staggered_first_episodes_are_shorter_and_do_not_count(icy):
    staggered, first, rollout, _ = icy
    if not staggered:
        assert rollout.episodes.valid.all()
        return
    assert len(set(first.environment.time.tolist())) > 1
    assert (first.environment.time < LAKE.horizon).all()
    invalid = rollout.episodes.ended & ~rollout.episodes.valid
    np.testing.assert_array_equal(invalid.sum(0), first.environment.time > 0)
    full = rollout.episodes.ended & rollout.episodes.valid & ~rollout.episodes.terminated
    assert (rollout.episodes.length[full] == LAKE.horizon).all()


def test_observations_are_standardised_but_never_the_augmentation():
    mean, deviation = np.array([300.0, -1000.0]), np.array([40.0, 0.5])
    statistics = RunningStatistics(
        jnp.asarray(mean), jnp.asarray(deviation**2 * 100), jnp.asarray(100.0)
    )
    first, rollout, raw = play(Aim(cost=7.0), CostAccount(1.0, 0.5), statistics, stagger=False)
    np.testing.assert_array_equal(raw[0], first.environment.observation)
    expected = np.clip((raw - mean) / deviation, -10, 10)
    np.testing.assert_allclose(rollout.inputs[..., :2], expected, rtol=1e-4, atol=1e-3)
    inner = ~rollout.done[:-1]
    np.testing.assert_allclose(
        rollout.next_inputs[:-1][inner], rollout.inputs[1:][inner], rtol=1e-5, atol=1e-6
    )
    # g = 1, 1/2, ... and y = 7, 10.5, ...; networks see no more than the clip, records see all.
    np.testing.assert_allclose(rollout.inputs[:5, 0, 2], 0.5 ** np.arange(5))
    spent = 7 * (2 - 2 * 0.5 ** np.arange(5))
    np.testing.assert_allclose(rollout.inputs[:5, 0, 3], np.minimum(spent, SPENT_CLIP), rtol=1e-5)
    np.testing.assert_allclose(rollout.spent[:5, 0], spent, rtol=1e-5)
    np.testing.assert_allclose(rollout.episodes.cost[4], 7 * (2 - 2 * 0.5**5), rtol=1e-5)


@dataclass(frozen=True)
class Echo(Aim):
    """Every step costs what the action says."""

    def step(self, now, action, key):
        time = now.time + 1
        return self._at(key, time=time, cost=action[0], truncated=time >= self.horizon)


@pytest.mark.parametrize("clock", [None, 5])
def test_a_frozen_policy_sees_the_clock_as_in_training(clock):
    """A policy whose action is the pace: t / H with a clock, g_t without."""
    pace = MLP((jnp.array([[0.0], [0], [1], [0]]),), (jnp.zeros(1),))
    policy = GaussianPolicy(pace, jnp.zeros(1))
    account = CostAccount(LIMIT, 0.5, clock)
    keys = jax.random.split(jax.random.key(0), 2)
    ends, _ = play_episodes(Echo(), account, policy, None, keys, deterministic=True)
    discount = 0.5 ** np.arange(5)
    seen = discount if clock is None else np.arange(5) / 5
    np.testing.assert_allclose(ends.cost, discount @ seen, rtol=1e-5)
