"""Videos of Gymnasium runs: pictures by the environment's own renderer, of the recorded episode."""

import sys
from functools import partial

import numpy as np
import pytest

import canary
from canary import host_loop
from canary.environments import from_gymnasium
from canary.errors import CanaryError
from canary.rendering.gymnasium_environment import draw, shots
from canary.rendering.run import drawing_for
from canary.runs.policies import EvaluationPlan, load_policies
from problems.host_environments import DrawnForgetful, DrawnWalk, shade
from rendering.recorded_episodes import record_rows
from runs.untrained_runs import untrained_run

DRAWN = "problems.host_environments:DrawnWalk"
EPISODES, HORIZON = 10, 12
TASK = {"constraint": canary.Chance(limit=3.0, epsilon=0.2), "seeds": (0,)}


def no_cost(*_):
    return 0.0


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> canary.Run:
    environment = from_gymnasium(DRAWN, horizon=HORIZON)
    directory = untrained_run(tmp_path_factory.mktemp("drawn"), env=environment, **TASK)
    return canary.load(directory, environment)


@pytest.fixture(scope="module")
def films(run):
    """An evaluation in rounds of four, and two of its episodes recorded."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(host_loop, "MOST_LANES", 4)
        policies = load_policies(run.config, run.directory)
        return record_rows(policies, EvaluationPlan(episodes=EPISODES), [6, 9])


@pytest.mark.parametrize("which", [0, 1])
def test_every_picture_is_of_its_moment(run, films, which):
    row, episode = films[which]
    assert (episode.cost, episode.length) == (row["cost"], row["length"])
    assert episode.number == row["episode"]
    moments = [0, *range(2, episode.length), episode.length]
    film = episode.states.inner
    taken = shots(run.config.environment, film.identity[0], film.action[1:], moments)
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


def test_another_episode_than_the_recorded_one_is_reported(films):
    episode = films[0][1]
    other = from_gymnasium(DrawnForgetful, horizon=HORIZON)
    moments = range(episode.length + 1)
    with pytest.warns(UserWarning, match="differs by step 1"):
        assert len(list(draw(other, episode, moments, 48))) == len(moments)
