"""A run that is killed anywhere and resumed equals one that was left alone."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

from canary.errors import CanaryError
from canary.experiments import checkpoint, storage
from canary.experiments.config import config_from_dict
from canary.experiments.runner import load_states, resume_run, start_run
from problems.compilation import quick_compilation
from problems.small_runs import SEEDS, UPDATES, run_config

TESTS = Path(__file__).parents[1]


@pytest.fixture(scope="module", autouse=True)
def quick():
    with quick_compilation():
        yield


def process(*arguments: str) -> subprocess.Popen:
    environment = os.environ | {
        "JAX_DISABLE_MOST_OPTIMIZATIONS": "1",  # as in this process: other optimisations give other bits
        "PYTHONPATH": os.pathsep.join([str(TESTS), str(TESTS.parent / "src")]),
    }
    command = [sys.executable, "-m", "problems.small_runs", *arguments]
    return subprocess.Popen(
        command, env=environment, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def killed(*arguments: str) -> str:
    """Run it until it kills itself; what it printed."""
    child = process(*arguments)
    _, errors = child.communicate(timeout=180)
    assert child.returncode == -signal.SIGKILL, errors
    return errors


def killed_from_outside(run: Path, delay: float) -> None:
    """Resume the run and kill it `delay` seconds after its first new checkpoint."""
    before = checkpoint.checkpoints(run / "checkpoints")
    child = process("resume", str(run))
    while child.poll() is None and checkpoint.checkpoints(run / "checkpoints") == before:
        time.sleep(0.002)
    time.sleep(delay)
    child.kill()
    _, errors = child.communicate(timeout=60)
    assert child.returncode == -signal.SIGKILL, errors


def arrays(run: Path) -> dict[str, np.ndarray]:
    with np.load(checkpoint.checkpoints(run / "checkpoints")[0], allow_pickle=False) as archive:
        return {name: archive[name] for name in archive.files}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The uninterrupted run."""
    return start_run(run_config(), tmp_path_factory.mktemp("whole"), quiet=True)


@pytest.fixture(scope="module")
def survivor(tmp_path_factory):
    """A run killed again and again, its newest checkpoint cut short, and resumed to the end.

    Also what the process said that found the damaged checkpoint, and the paths of that and the one before it.
    """
    out = tmp_path_factory.mktemp("killed")
    killed("start", str(out), "half:checkpoints/:1")  # the first state is half written: no checkpoint yet
    (run,) = (path for path in out.iterdir() if path.name[0] != ".")
    folder = run / "checkpoints"
    assert checkpoint.checkpoints(folder) == []
    assert storage.run_status(storage.read_json(run / "manifest.json")) == "interrupted"
    killed("resume", str(run), "renamed:/metrics/:2")  # rows without their episodes and their state
    assert len(checkpoint.checkpoints(folder)) == 1
    killed("resume", str(run), "written:checkpoints/:1")  # the state is complete but not in its place
    assert len(checkpoint.checkpoints(folder)) == 1
    killed_from_outside(run, random.Random().uniform(0, 0.1))
    newest, previous = checkpoint.checkpoints(folder)[:2]
    data = newest.read_bytes()
    newest.write_bytes(data[: len(data) * 2 // 3])
    said = killed("resume", str(run), "renamed:/metrics.parquet:1")  # the other table is not yet joined
    assert not (run / "episodes.parquet").exists()
    resume_run(run, quiet=True)
    return run, said, (newest, previous)


def test_whole_run_is_complete(whole):
    metrics, episodes = (
        pl.read_parquet(whole / "metrics.parquet"),
        pl.read_parquet(whole / "episodes.parquet"),
    )
    assert metrics.height == len(SEEDS) * UPDATES
    assert metrics["seed"].to_list() == [seed for seed in SEEDS for _ in range(UPDATES)]
    assert metrics["iteration"].to_list() == list(range(UPDATES)) * len(SEEDS)
    assert metrics["steps"].max() == UPDATES * 200
    # Every step belongs to an episode that ended or to one of the last, unfinished ones of each environment.
    lengths = episodes.group_by("seed").agg(pl.col("length").sum())["length"]
    assert ((lengths > UPDATES * 200 - 4 * 20) & (lengths <= UPDATES * 200)).all()
    assert (episodes.filter(~pl.col("terminated") & pl.col("valid"))["length"] == 20).all()
    assert (episodes.filter("terminated")["return"] == 1).all()
    manifest = storage.read_json(whole / "manifest.json")
    assert (manifest["status"], manifest["steps"]) == ("finished", UPDATES * 200)


def test_killed_and_resumed_run_equals_the_whole_one(whole, survivor):
    run, _, _ = survivor
    for table in ("metrics.parquet", "episodes.parquet"):
        assert_frame_equal(pl.read_parquet(run / table), pl.read_parquet(whole / table), check_exact=True)
    found, expected = arrays(run), arrays(whole)
    assert found.keys() == expected.keys()
    for name in expected:
        np.testing.assert_array_equal(found[name], expected[name], err_msg=name)
    assert storage.read_json(run / "manifest.json")["status"] == "finished"


def test_truncated_checkpoint_is_named_and_the_one_before_it_used(survivor):
    _, errors, (newest, previous) = survivor
    text = "".join(errors.split())  # lines are wrapped to the width of the console
    assert f"{newest.name}isdamaged" in text
    assert f"Using{previous.name}instead." in text
    assert "Traceback" not in errors


def test_nothing_half_written_is_left(whole, survivor):
    for run in (whole, survivor[0]):
        names = {path.relative_to(run).as_posix() for path in run.rglob("*")}
        checkpoints = {name for name in names if name.startswith("checkpoints/")}
        assert len(checkpoints) == 2
        assert names - checkpoints == {
            "config.json", "manifest.json", "metrics", "episodes", "checkpoints", "metrics.parquet",
            "episodes.parquet",
        }  # fmt: skip


def test_finished_runs_are_left_alone(whole):
    before = {path: path.stat().st_mtime_ns for path in whole.rglob("*")}
    assert resume_run(whole, quiet=True) == whole
    assert {path: path.stat().st_mtime_ns for path in whole.rglob("*")} == before


def test_a_run_in_training_cannot_be_resumed(whole, tmp_path):
    copy = tmp_path / "copy"
    copy.mkdir()
    for name in ("config.json", "manifest.json"):
        (copy / name).write_bytes((whole / name).read_bytes())
    storage.update_manifest(copy, status="running", process=storage.process_identity())
    with pytest.raises(CanaryError, match="another process"):
        resume_run(copy, quiet=True)


def test_states_can_be_loaded_for_use(whole):
    config = config_from_dict(storage.read_json(whole / "config.json"))
    assert config == run_config()
    states, iteration, notes = load_states(config, whole)
    assert (iteration, notes) == (UPDATES, [])
    assert np.asarray(states.iteration).tolist() == [UPDATES] * len(SEEDS)
