"""Videos of Gymnasium runs: pictures by the environment's own renderer, of the recorded episode."""

import importlib.util
import sys
from functools import partial

import jax
import numpy as np
import pytest
from PIL import Image

import canary
from canary import host_loop
from canary.cli import main
from canary.environments import from_gymnasium
from canary.errors import CanaryError
from canary.host.episodes import SEED_BITS
from canary.rendering.gymnasium_environment import draw, fitted
from canary.rendering.run import drawing_for, replay
from canary.runs.policies import EvaluationPlan, load_policies, play
from problems.host_environments import DrawnForgetful, DrawnWalk, Walk, drawn, shade
from runs.untrained_runs import untrained_run

DRAWN = "problems.host_environments:drawn"
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
    """An evaluation in rounds of four, and one of its episodes played again."""
    monkeypatch.setattr(host_loop, "MOST_LANES", 4)
    policies = load_policies(run.config, run.directory)
    plan = EvaluationPlan(episodes=EPISODES)
    row = play(policies, plan)[0].row(number, named=True)
    (episode,) = replay(policies, plan, {"worst": row})
    return row, episode


@pytest.mark.parametrize("number", [0, 6, 9])
def test_every_picture_is_of_its_moment(run, monkeypatch, number):
    row, episode = recorded(run, number, monkeypatch)
    assert (episode.cost, episode.length, episode.number) == (row["cost"], row["length"], number)
    moments = [0, *range(2, episode.length), episode.length]
    shots = run.config.environment.shots(episode.states.inner, moments)
    for now, (picture, seen) in zip(moments, shots, strict=True):
        x = episode.states.observation[now, 0]
        assert picture.shape == (10 + now, 40, 3)
        assert abs(int(picture[0, 0, 0]) - shade(x)) <= 1
        np.testing.assert_array_equal(seen, episode.states.observation[now])


def test_a_film_keeps_the_action_that_led_to_each_state(run, monkeypatch):
    """Of a log of a thousand actions a thousand copies would be kept."""
    _, episode = recorded(run, 3, monkeypatch)
    film = episode.states.inner
    assert film.action.shape == (episode.length + 1, 2)
    plain = Walk()
    plain.reset(seed=int(film.identity[0, 0] & SEED_BITS))
    for now in range(1, episode.length + 1):
        first, second = np.clip(film.action[now], -1, 1)
        seen, *_ = plain.step(np.array([1 + 2 * first, (1 + second) / 2]))
        np.testing.assert_allclose(seen, episode.states.observation[now], rtol=1e-5)


def test_pictures_fill_the_square_and_keep_their_shape():
    wide = fitted(np.full((20, 60, 3), 7, np.uint8), 90)
    assert (wide[30:60] == 7).all()
    assert (wide[:30] == 255).all()
    assert (wide[60:] == 255).all()
    assert (fitted(np.full((1, 500, 3), 7, np.uint8), 90) == 7).any()


def test_the_command_line_makes_a_video(run, capsys):
    arguments = ["evaluate", str(run.directory), "--trust", "--episodes", "4", "--video"]
    assert main([*arguments, "--quiet"]) == 0
    assert capsys.readouterr().out == f"{run.directory / 'video.gif'}\n"
    with Image.open(run.directory / "video.gif") as image:
        assert 2 <= image.n_frames <= HORIZON + 1


def test_a_function_that_makes_it_with_a_renderer_is_taken_as_it_is():
    make = "problems.host_environments:drawn_always"
    assert drawing_for(from_gymnasium(make, horizon=5)) is draw


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        ("problems.host_environments:walk", r"walk makes no pictures: its metadata\['render_modes'\] has no 'rgb_array'\. Add"),
        ("problems.host_environments:drawn_without_mode", r"takes no argument render_mode, .* hand it on"),
        (partial(drawn, picture="missing"), r"cannot be drawn here \(DependencyNotInstalled: a_brush is not installed"),
        (partial(drawn, picture="text"), r"returned a str, not a uint8 array of shape \[height, width, 3\]"),
        (partial(drawn, picture="real"), r"returned float32\[10, 40, 3\], not a uint8"),
        (partial(drawn, picture="no screen"), r"RuntimeError: no OpenGL .*\(without a screen .*MUJOCO_GL=egl"),
        ("CartPole-v1", r"CartPole-v1 cannot be drawn here \(DependencyNotInstalled: pygame is not installed, run"),
    ],
)  # fmt: skip
def test_what_cannot_be_drawn_is_a_sentence(monkeypatch, make, sentence):
    monkeypatch.setitem(sys.modules, "pygame", None)  # as where it is not installed
    environment = from_gymnasium(make, cost=no_cost, horizon=5)
    with pytest.raises(CanaryError, match=sentence) as caught:
        drawing_for(environment)
    assert "run.video(drawing=...), see docs/rendering.md" in str(caught.value)


def test_the_sentence_comes_before_any_episode_is_played(tmp_path, monkeypatch):
    environment = from_gymnasium("problems.host_environments:walk", horizon=5, workers=0)
    plain = canary.load(untrained_run(tmp_path, env=environment, **TASK), environment)
    monkeypatch.setattr("canary.api.using.play", None)
    with pytest.raises(CanaryError, match="makes no pictures"):
        plain.video()


def test_another_episode_than_the_recorded_one_is_told(run, monkeypatch):
    _, episode = recorded(run, 0, monkeypatch)
    other = from_gymnasium(DrawnForgetful, horizon=HORIZON)
    moments = range(episode.length + 1)
    with pytest.warns(
        UserWarning, match="went another way by step 1 when .* not those of the cost"
    ):
        assert len(list(draw(other, episode, moments, 48))) == len(moments)


def test_an_environment_that_ends_earlier_stays_there(run):
    environment, count = from_gymnasium(DrawnWalk, horizon=HORIZON), 30
    film = host_loop.FilmedState(
        jax.numpy.zeros((count, 2), jax.numpy.uint32), jax.numpy.ones((count, 2))
    )
    taken = list(environment.shots(film, range(count)))
    heights = [len(picture) for picture, _ in taken]
    assert heights == sorted(heights)
    assert heights[-1] == heights[-2] < 10 + count


@pytest.mark.skipif(importlib.util.find_spec("pygame") is None, reason="pygame is not installed")
@pytest.mark.parametrize("name", ["CartPole-v1", "Pendulum-v1"])
def test_tasks_of_gymnasium_are_drawn(name):
    environment = from_gymnasium(name, cost=no_cost)
    size = 1 if name == "CartPole-v1" else environment.action_space.size
    film = host_loop.FilmedState(np.zeros((9, 2), np.uint32), np.ones((9, size)))
    pictures = [picture for picture, _ in environment.shots(film, [0, 8])]
    assert (pictures[0] != pictures[1]).any()
