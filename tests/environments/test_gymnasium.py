"""Gymnasium environments through the adapter against a plain Python loop over them."""

from functools import partial

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import canary
from canary import host_loop
from canary.config.config import make_config
from canary.environments import from_gymnasium
from canary.environments.protocol import Environment
from canary.errors import CanaryError
from canary.evaluation import make_player
from canary.host.episodes import SEED_BITS
from canary.host_loop import HostTraining, lanes_of
from canary.networks import make_policy
from canary.rollout import CostAccount, transition
from canary.runs.seeds import make_terms, make_trainer
from problems.host_environments import WALK, Walk

ACCOUNT = CostAccount(limit=2.0, cost_discount=1.0)
LANES, LENGTH = 4, 30


def speed(before, action, after, info):
    """A cost for tasks that have none: the last numbers of observation and action."""
    del before, info
    return abs(float(np.ravel(after)[-1])) + 0.1 * abs(float(np.ravel(action)[-1]))


def play(environment, seed=0, stagger=False, lanes=LANES, length=LENGTH):
    """First lanes, last lanes, rollout and raw observations of a nearly random policy."""

    settings = (
        "algo.hidden=[4]", f"training.environments={lanes}", f"training.rollout_length={length}",
        f"training.stagger={str(stagger).lower()}",
    )  # fmt: skip
    constraint = canary.Chance(ACCOUNT.limit, 0.1)
    config = make_config(environment, "ppo", constraint, "fast", settings, seeds=(seed,))
    training = HostTraining(make_trainer(config), None)
    first = training.init(make_terms(config), jnp.int32(seed))
    tables, actions, last = training.collect(first)
    before, after = (lanes_of(jnp.asarray(each)) for each in tables)
    inputs = before.inputs(ACCOUNT, None)
    rollout = transition(ACCOUNT, None, before, inputs, jnp.asarray(actions), after)
    played = first.lanes, last, rollout, before.environment.observation
    return jax.tree.map(np.asarray, played)


def stretched(space, action):
    if isinstance(space, gymnasium.spaces.Discrete):
        return int(action) + int(space.start)
    low, high = space.low.astype(float), space.high.astype(float)
    middle, half = (high + low) / 2, (high - low) / 2
    return (middle + half * np.clip(action.reshape(space.shape), -1, 1)).astype(space.dtype)


def check_against_a_loop(make, cost, environment, played, horizon):
    """Step each lane by hand with the actions of the rollout, up to its second reset."""
    first, _, rollout, raw = played
    compared = 0
    for lane in range(raw.shape[1]):
        plain = make()
        seen, _ = plain.reset(seed=int(first.identity[lane, 0] & SEED_BITS))
        for time in range(horizon):
            if time >= len(raw):
                break
            np.testing.assert_array_equal(raw[time, lane], np.ravel(seen).astype(np.float32))
            action = stretched(plain.action_space, rollout.action[time, lane])
            after, reward, terminated, truncated, info = plain.step(action)
            assert rollout.reward[time, lane] == np.float32(reward)
            raw_cost = np.float32(cost(seen, action, after, info))
            assert rollout.cost[time, lane] == pytest.approx(raw_cost / ACCOUNT.limit, rel=1e-6)
            is_cut = (truncated or time + 1 == horizon) and not terminated
            assert (rollout.terminated[time, lane], rollout.truncated[time, lane]) == (
                terminated,
                is_cut,
            )
            size = environment.observation_size
            np.testing.assert_array_equal(
                rollout.next_inputs[time, lane, :size], np.ravel(after).astype(np.float32)
            )
            seen, compared = after, compared + 1
            if terminated or is_cut:
                break
        plain.close()
    return compared


@pytest.mark.parametrize(("name", "horizon"), [("CartPole-v1", 25), ("Pendulum-v1", 12)])
def test_tasks_of_gymnasium_agree_with_a_plain_loop(name, horizon):
    environment = from_gymnasium(name, cost=speed, horizon=horizon)
    assert isinstance(environment, Environment)
    played = play(environment)
    make = partial(gymnasium.make, name)
    assert check_against_a_loop(make, speed, environment, played, horizon) >= LANES * 8
    assert played[2].done.sum() >= LANES  # episodes end within the rollout, so resets are in it


def test_a_time_limit_of_its_own_truncates_and_does_not_terminate():
    def make():
        return gymnasium.wrappers.TimeLimit(Walk(noise=0.1, drift=0.0), 7)

    rollout = play(from_gymnasium(make, horizon=50))[2]
    assert rollout.truncated[6].all()
    assert not rollout.terminated.any()


def test_episodes_that_end_at_the_limit_by_themselves_are_terminated_only():
    class Both(Walk):
        def step(self, action):
            observation, reward, _, _, info = super().step(action)
            return observation, reward, self.time == 5, self.time == 5, info

    rollout = play(from_gymnasium(Both, horizon=50))[2]
    assert rollout.terminated[4].all()
    assert not rollout.truncated.any()


def test_staggered_lanes_are_cut_by_their_clock():
    first, _, rollout, _ = play(
        from_gymnasium(Walk, horizon=20, drift=0.0, noise=0.1), stagger=True
    )
    times = lanes_of(first.table).environment.time
    assert len(set(times.tolist())) > 1
    for lane, time in enumerate(times):
        assert rollout.truncated[19 - time, lane]
        assert not rollout.truncated[: 19 - time, lane].any()


@pytest.mark.parametrize(
    ("make", "cost"),
    [(WALK, "problems.host_environments:depth"), ("problems.host_environments:SixValues", "safety-gymnasium")],
    ids=["name", "six"],
)  # fmt: skip
def test_the_cost_can_come_from_a_named_function_or_the_six_values(make, cost):
    rollout = play(from_gymnasium(make, cost=cost, horizon=12))[2]
    position = rollout.next_inputs[..., 0]
    np.testing.assert_allclose(rollout.cost * ACCOUNT.limit, np.maximum(-position, 0), rtol=1e-6)
    assert rollout.cost.any()


def test_evaluation_plays_in_rounds_what_it_cannot_play_at_once(monkeypatch):
    keys = jax.random.split(jax.random.key(5), 10)
    results = []
    for most in (64, 4):
        monkeypatch.setattr(host_loop, "MOST_LANES", most)
        environment = from_gymnasium(Walk, horizon=12)
        policy = make_policy(jax.random.key(0), 4, environment.action_space, (4,))
        play = make_player(environment, ACCOUNT)
        results.append(jax.tree.map(np.asarray, play(policy, None, keys)))
        film = play.film(policy, None, keys, 6)
        assert film.length[-1] == results[-1].length[6]
        assert film.spent[-1] == pytest.approx(results[-1].cost[6], rel=1e-5)
        identity = film.environment.inner.identity
        assert (identity == identity[0]).all()
    assert results[0].ended.all()
    assert (results[0].length <= 12).all()
    jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-5), *results)


class Unbounded(Walk):
    def __init__(self):
        super().__init__()
        self.action_space = gymnasium.spaces.Box(-np.inf, np.inf, (2,))


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"make": "Nothing-v9"}, "Gymnasium knows no environment 'Nothing-v9'"),
        ({"make": lambda: 1 / 0}, "ZeroDivisionError"),
        ({"make": Walk}, "say it with horizon="),
        ({"make": Walk, "horizon": 9, "cost": "hazard"}, "cost must be a function"),
        ({"make": Unbounded, "horizon": 5}, "no finite bounds"),
    ],
)
def test_mistakes_are_told_when_the_environment_is_made(arguments, sentence):
    with pytest.raises(CanaryError, match=sentence):
        from_gymnasium(**arguments)


class Strange(Walk):
    """Answers that no environment of Gymnasium gives."""

    def __init__(self, what):
        super().__init__()
        self.what = what

    def reset(self, *, seed=None, options=None):
        observation, info = super().reset(seed=seed)
        return observation if self.what == "old reset" else (observation, info)

    def step(self, action):
        observation, reward, terminated, truncated, info = super().step(action)
        if self.what == "four":
            return observation, reward, terminated, info
        key = "hazard" if self.what == "no cost" else "cost"
        return observation, reward, terminated, truncated, {key: "high"}


@pytest.mark.parametrize(
    ("what", "sentence"),
    [
        ("old reset", r"while it was reset: reset.. must return two values"),
        ("four", r"in lane 0 in step 1 of its episode: step.. returned 4 values"),
        ("no cost", "info has no 'cost'"),
        ("text", "the cost 'high'; both must be numbers"),
    ],
)
def test_answers_that_make_no_sense_are_named(what, sentence):
    with pytest.raises(CanaryError, match=sentence):
        play(from_gymnasium(Strange, horizon=5, what=what), length=2)
