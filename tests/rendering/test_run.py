"""`canary evaluate --video`: the right episodes are chosen, recorded exactly, drawn and written."""

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
import polars as pl
import pytest
from PIL import Image

import canary
from canary.cli import main
from canary.environments.eco_ant import EcoAnt
from canary.errors import CanaryError
from canary.rendering.run import choose
from canary.runs.policies import EvaluationPlan, load_policies, play
from rendering.recorded_episodes import record_rows
from runs.untrained_runs import LAKE, untrained_run

EPISODES = 20


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> canary.Run:
    directory = untrained_run(tmp_path_factory.mktemp("video") / "runs", sharpness=5.0)
    return canary.load(directory, LAKE)


def frame_count(path: Path) -> int:
    with Image.open(path) as image:
        return image.n_frames


def table(costs: list[float], returns: list[float]) -> pl.DataFrame:
    return pl.DataFrame({"episode": range(len(costs)), "cost": costs, "return": returns})


def test_worst_and_median_are_chosen_by_cost_then_return():
    chosen = choose(table([0.0, 2.0, 9.0, 0.0, 9.0], [1.0, 1.0, 1.0, 0.0, 0.0]))
    assert {name: row["episode"] for name, row in chosen.items()} == {"worst": 4, "median": 1}
    many = choose(table([0.0, 0.0, 0.0, 0.0, 7.0], [5.0, 1.0, 3.0, 0.0, 0.0]))
    assert many["median"]["return"] == 1.0  # the lower middle of 0, 1, 3, 5
    assert choose(table([1.0], [0.0]))["median"] == choose(table([1.0], [0.0]))["worst"]


@pytest.mark.parametrize(("deterministic", "batch"), [(False, 500), (True, 16)])
def test_a_recorded_episode_is_the_evaluated_one(run, deterministic, batch, monkeypatch):
    monkeypatch.setattr("canary.runs.policies.BATCH", batch)
    policies = load_policies(run.config, run.directory)
    plan = EvaluationPlan(episodes=EPISODES, deterministic=deterministic)
    for row, episode in record_rows(policies, plan, [27, 11, 19, 16]):
        assert (episode.seed, episode.number) == (row["seed"], row["episode"])
        assert (episode.cost, episode.length) == (row["cost"], row["length"])
        assert episode.reward[-1] == row["return"]
        states = episode.states
        assert (states.time == np.arange(row["length"] + 1)).all()
        assert (np.cumsum(states.cost) == episode.spent).all()
        assert (LAKE.ice[states.inner] == (states.cost > 0)).all()
        assert states.inner[0] == LAKE.start
        moves = LAKE.successors[states.inner[:-1]].reshape(row["length"], -1)
        # Each state can follow the one before
        assert (moves == states.inner[1:, None]).any(1).all()
        assert bool(states.terminated[-1]) == row["terminated"]
        assert not (states.terminated | states.truncated)[:-1].any()
        assert all(isinstance(leaf, np.ndarray) for leaf in jax.tree.leaves(states))


def test_the_film_of_a_chaotic_environment_is_bit_equal_to_its_evaluation(tmp_path: Path):
    """Two programs would round differently, and an ant would walk elsewhere."""
    ant = EcoAnt(horizon=120)
    run = untrained_run(tmp_path, env=ant, seeds=(0,), constraint=canary.Chance(3.0, 0.1))
    policies = load_policies(canary.load(run, ant).config, run)
    for row, episode in record_rows(policies, EvaluationPlan(episodes=6), [0, 3, 5]):
        assert (episode.length, episode.cost) == (row["length"], row["cost"])
        assert episode.reward[-1] == row["return"]


def test_the_command_writes_a_video_and_says_where(run, tmp_path, capsys):
    arguments = ["evaluate", str(run.directory), "--episodes", str(EPISODES)]
    assert main([*arguments, "--video", "--json", "-"]) == 0
    out = capsys.readouterr()
    video, path = json.loads(out.out)["video"], run.directory / "video.gif"
    assert video["path"] == str(path)
    assert str(path) in out.err.replace("\n", "")
    worst, median = video["worst"], video["median"]
    assert frame_count(path) == video["frames"] == max(worst["steps"], median["steps"]) + 1
    policies = load_policies(run.config, run.directory)
    costs = play(policies, EvaluationPlan(episodes=EPISODES))[0]["cost"].sort()
    assert (median["cost"], worst["cost"]) == (costs[EPISODES - 1], costs[-1])
    assert main([*arguments, "--quiet", "--video", str(tmp_path / "own.gif")]) == 0
    assert capsys.readouterr().out == f"{tmp_path / 'own.gif'}\n"
    assert frame_count(tmp_path / "own.gif") == video["frames"]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--video", "worst.avi"], ".gif or .mp4 file, not 'worst.avi'"),
        (["--video", "missing/a.gif"], "no directory missing"),
    ],
)
def test_mistakes_are_sentences(run, tmp_path, capsys, monkeypatch, arguments, sentence):
    monkeypatch.chdir(tmp_path)
    assert main(["evaluate", str(run.directory), *arguments]) == 2
    assert sentence in capsys.readouterr().err
    assert not list(tmp_path.glob("*.gif"))


@dataclass(frozen=True, kw_only=True)
class Counter:
    """Somebody's own environment around a lake, which canary cannot draw."""

    lake: Any = LAKE
    drawing: None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(LAKE, name)


def test_somebody_else_can_draw_their_own_environment(run: canary.Run, tmp_path: Path):
    changed = replace(run.config, environment=Counter(), environment_changes=("it is another",))
    own = canary.Run(run.directory, changed)
    with pytest.raises(CanaryError, match="no drawing of Counter"):
        own.video(tmp_path / "own.gif", EPISODES)
    seen: list[Any] = []

    def draw(environment, episode, moments, size):
        seen.append((environment, episode.length, list(moments)))
        for now in moments:
            yield np.full((size, size, 3), 20 * now, np.uint8)

    path = own.video(tmp_path / "own.gif", EPISODES, drawing=draw, most_frames=4, seeds=[3])
    assert path == tmp_path / "own.gif"
    assert frame_count(path) <= 4
    assert [(environment, moments[-1]) for environment, length, moments in seen] == [
        (Counter(), length) for _, length, _ in seen
    ]
