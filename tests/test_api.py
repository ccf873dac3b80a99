"""The Python interface: train, load, evaluate, and act with a policy that keeps account of the cost."""

import shutil
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import canary
from canary import CanaryError
from canary.api import Run, _yardstick
from canary.config.config import make_config
from canary.config.run_config import config_to_dict
from canary.environments.icy_lake import IcyLake
from canary.evaluation import make_player
from canary.reporting.summary import EvaluationSummary, TrainingSummary
from canary.runs import directory
from canary.runs.environment import describe_environment
from tiny_runs import SETTINGS, STEPS, environment

HERE = np.eye(16)[0]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    out = tmp_path_factory.mktemp("api") / "runs"
    how = {"seeds": [0, 3], "total_steps": np.int64(STEPS), "overrides": SETTINGS[1:]}
    constraint = canary.Chance(limit=5.5, epsilon=0.02)
    return canary.train(IcyLake(horizon=60), "Canary", constraint, out=out, quiet=True, **how)


def test_importing_is_light():
    code = (
        "import sys, canary, canary.runs.directory, canary.cli\n"
        "heavy = {'jax', 'polars', 'numpy', 'scipy', 'matplotlib'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
        "assert set(canary.__all__) <= set(dir(canary))\n"
        "canary.CanaryError; assert 'jax' not in sys.modules\n"
        "canary.Chance(limit=1.0, epsilon=0.5); assert 'jax' not in sys.modules\n"
        "import canary.terminal.progress\n"
        "assert not {'jax', 'polars', 'scipy'} & set(sys.modules)\n"
        "canary.ALGORITHMS['canary']; assert 'jax' in sys.modules\n"
        "import jax, canary.rendering.run, canary.environments as e\n"
        "e.ENVIRONMENTS['EcoAnt']().reset(jax.random.key(0))\n"
        "assert 'mujoco' not in sys.modules\n"  # it is imported when something moves
        "assert all(getattr(canary, name) for name in canary.__all__)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment(), capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_train_leaves_a_run_that_loads_again(run: Run):
    summary = run.summary()
    found = summary["status"], summary["seed_ids"], summary["total_steps"]
    assert found == ("finished", [0, 3], STEPS)
    assert (run.directory / "summary.json").is_file()
    loaded = canary.load(run.directory)
    assert loaded.config == run.config
    assert loaded.config.environment == IcyLake(horizon=60)
    assert loaded.summary() == summary
    for record, found in ((TrainingSummary, summary), (EvaluationSummary, run.evaluate(40))):
        known = record.__annotations__.keys() | record.__required_keys__ | {"run_dir"}
        assert record.__required_keys__ <= found.keys() <= known
    assert canary.load("latest", out=run.directory.parent).directory == run.directory
    assert run.metrics.shape[0] == 2 * 4
    assert set(run.episodes["seed"]) == {0, 3}
    again = loaded.resume(quiet=True).summary()  # finished: nothing changes but the evaluation
    assert again | {"final_check": None} == summary | {"final_check": None}


@dataclass(frozen=True, kw_only=True)
class OwnLake(IcyLake):
    """Somebody's own environment, which has no name here."""


def test_an_environment_without_a_name_is_handed_over(tmp_path: Path):
    config = make_config(OwnLake(horizon=9), constraint=canary.Chance(limit=2.0, epsilon=0.3))
    described = describe_environment(config.environment)
    del described["source"]  # as of a class in a script
    stored = config_to_dict(config) | {"environment": described}
    place = directory.create(tmp_path, stored, 1000)
    with pytest.raises(CanaryError, match="OwnLake, which cannot be imported"):
        canary.load(place)
    assert canary.load(place, OwnLake(horizon=9)).config == config


def test_episodes_of_an_evaluation_are_addressed(run: Run):
    played: list[tuple[int, int]] = []
    many = canary.evaluate(run, 40, report=lambda seed, count: played.append((seed, count)))
    assert played == [(0, 40), (3, 40)]
    found = many["episodes_per_seed"], many["violation_jitter"], many["updates"]
    assert found == ([40, 40], None, 4)
    alone = canary.evaluate(run.directory, episodes=40, seeds=[3])
    assert alone["cost_per_seed"] == many["cost_per_seed"][1:]
    other = canary.evaluate(run, episodes=40, evaluation_seed=1, seeds=[3])
    assert other["cost_per_seed"] != alone["cost_per_seed"]
    likely = canary.evaluate(run, episodes=40, deterministic=True, seeds=[3])
    assert likely["cost_per_seed"] != alone["cost_per_seed"]


def test_an_environment_with_a_cost_of_nan_is_not_called_safe(run: Run, monkeypatch):
    step = IcyLake.step
    nan = lambda *given: replace(step(*given), cost=jnp.nan)  # noqa: E731
    monkeypatch.setattr(IcyLake, "step", nan)
    with pytest.raises(CanaryError, match="cost that is not finite"):
        canary.evaluate(run, episodes=3)


def test_an_episode_handle_plays_as_evaluation_does(run: Run):
    """Step by step, the handle plays the episodes of the vectorised program."""
    trained, lake = run.policy(3), run.config.environment
    keys = jax.random.split(jax.random.key(8), 3)
    play = make_player(lake, trained.account, deterministic=True)
    ends = play(trained.policy, trained.statistics, keys)
    step = jax.jit(lake.step)
    for index, key in enumerate(keys):
        key_reset, _, key_step = jax.random.split(key, 3)
        episode, state, time = trained.start(), lake.reset(key_reset), 0
        while not (state.terminated or state.truncated):
            action = episode.act(np.asarray(state.observation), deterministic=True)
            assert isinstance(action, int)
            state = step(state, action, jax.random.fold_in(key_step, time))
            episode.spend(float(state.cost))
            time += 1
        assert time == int(ends.length[index])
        assert episode.spent == float(ends.cost[index])
        assert episode.remaining == 5.5 - episode.spent


def test_the_summary_ends_with_the_frozen_policies(run: Run, tmp_path: Path, monkeypatch):
    monkeypatch.setattr("canary.api.CHECK_EPISODES", (3,))
    copy = shutil.copytree(run.directory, tmp_path / "copy")
    checked = canary.load(copy).resume(total_steps=STEPS + 1000, quiet=True)
    check = checked.summary()["final_check"]
    assert check is not None
    assert check["episodes_per_seed"] == [3, 3]
    assert check["constraint_per_seed"] == checked.evaluate(3)["constraint_per_seed"]


def test_a_run_that_went_wrong_says_what_constant_actions_reach(run: Run, monkeypatch):
    monkeypatch.setattr("canary.api.YARDSTICK_SECONDS", 1000.0)
    _yardstick(run)
    sentence = run.summary()["yardstick"]
    assert sentence is not None
    assert sentence.startswith("action 3 (P(cost > 5.5) 0 in 64 episodes")
