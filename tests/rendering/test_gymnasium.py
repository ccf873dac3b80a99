"""Videos of Gymnasium runs: pictures by the environment's own renderer, of the recorded episode."""

import sys
from functools import partial

import numpy as np
import pytest

import canary
from canary import host_loop
from canary.environments import from_gymnasium
from canary.errors import CanaryError
from canary.evaluation import make_recorder
from canary.host.episodes import SEED_BITS
from canary.rendering import run as videos
from canary.rendering.gymnasium_environment import draw, shots
from canary.rendering.run import drawing_for
from canary.runs.policies import EvaluationPlan, load_policies, play
from problems.host_environments import DrawnForgetful, DrawnWalk, shade
from runs.untrained_runs import untrained_run

DRAWN = "problems.host_environments:DrawnWalk"
EPISODES, HORIZON = 10, 12
TASK = {"constraint": canary.Chance(limit=3.0, epsilon=0.2), "seeds": (0,)}


def no_cost(*_):
    return 0.0


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> canary.Run:
    environment = from_gymnasium(DRAWN, horizon=HORIZON, workers=0)
    directory = untrained_run(tmp_path_factory.mktemp("drawn"), env=environment, **TASK)
    return canary.load(directory, environment)


def recorded(run, number, monkeypatch):
    """An evaluation in rounds of four, and one of its episodes recorded."""
    monkeypatch.setattr(host_loop, "MOST_LANES", 4)
    policies, plan = load_policies(run.config, run.directory), EvaluationPlan(episodes=EPISODES)
    recorder = make_recorder(run.config.environment, policies.account)
    table, _ = play(policies, plan, program=recorder.play)
    row = table.row(number, named=True)
    return row, videos.recorded(policies, plan, row, "worst", recorder)


@pytest.mark.parametrize("number", [6, 9])
def test_every_picture_is_of_its_moment(run, monkeypatch, number):
    row, episode = recorded(run, number, monkeypatch)
    assert (episode.cost, episode.length, episode.number) == (row["cost"], row["length"], number)
    moments = [0, *range(2, episode.length), episode.length]
    film = episode.states.inner
    seed = int(film.identity[0, 0] & SEED_BITS)
    taken = shots(run.config.environment.recipe, seed, film.action[1:], moments)
    for now, (picture, seen) in zip(moments, taken, strict=True):
        x = episode.states.observation[now, 0]
        assert picture.size == (40, 10 + now)
        assert abs(picture.getpixel((0, 0))[0] - shade(x)) <= 1
        np.testing.assert_array_equal(seen, episode.states.observation[now])


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        ("problems.host_environments:Walk", "must take render_mode"),
        (partial(DrawnWalk, picture="text"), "cannot be drawn here"),
        ("CartPole-v1", "pygame is not installed"),
    ],
)  # fmt: skip
def test_what_cannot_be_drawn_is_a_sentence(monkeypatch, make, sentence):
    monkeypatch.setitem(sys.modules, "pygame", None)  # as where it is not installed
    environment = from_gymnasium(make, cost=no_cost, horizon=5)
    with pytest.raises(CanaryError, match=sentence):
        drawing_for(environment)


def test_another_episode_than_the_recorded_one_is_reported(run, monkeypatch):
    _, episode = recorded(run, 0, monkeypatch)
    other = from_gymnasium(DrawnForgetful, horizon=HORIZON)
    moments = range(episode.length + 1)
    with pytest.warns(UserWarning, match="differs by step 1"):
        assert len(list(draw(other, episode, moments, 48))) == len(moments)
