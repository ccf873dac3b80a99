"""A run that is killed between any two writes, and resumed, equals one that was left alone: its
tables, its newest and kept states, and its logs."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import polars as pl
import pytest

from attacks.death import RENAMES, Mortal
from attacks.warm import warm
from canary.config.config import make_config
from canary.runs.runner import resume_run, start_run
from canary.watching.watcher import Watcher

SETTINGS = (
    "env.map=SFF/FHF/FFG", "env.horizon=12", "algo.hidden=[4]", "training.merge_capacity=0", "training.environments=5",
    "training.rollout_length=20", "training.checkpoint_seconds=0", "training.chunk=1", "training.keep_checkpoints=2",
)  # fmt: skip
SECONDS = 10.0  # that a training of the slow test takes, at most


def train(out: Path, *, log: str = "csv") -> Path:
    """Start the run in `out`, or go on with it."""
    for run in (path for path in out.glob("*") if path.name[0] != "."):
        return resume_run(run, quiet=True)
    config = make_config("IcyLake", "ppo", overrides=SETTINGS, seeds=(5,), total_steps=300)
    return start_run(config, out, quiet=True, watcher=Watcher(log=log))


def content(run: Path) -> dict[str, object]:
    """Every file of a run by its bytes, and tables by their rows; the manifest has times in it."""
    found: dict[str, object] = {}
    for path in sorted(run.rglob("*")):
        name = path.relative_to(run).as_posix()
        if path.suffix == ".parquet":
            found[name] = pl.read_parquet(path).to_dicts()
        elif path.name in ("manifest.json", "training.png") or "tensorboard" in name:
            found[name] = "exists"
        else:
            found[name] = path.read_bytes() if path.is_file() else "folder"
    return found


def test_a_kill_between_any_two_writes_loses_nothing(tmp_path: Path):
    with warm("ppo"):
        whole, write = content(train(tmp_path / "whole")), 0
        assert {"kept/checkpoint-00000002.npz", "log.csv", "episodes.parquet"} <= whole.keys()
        killed = Mortal(0)
        while write == 0 or killed.is_dead:
            write += 1
            out = tmp_path / str(write)
            killed = Mortal(write, counted=RENAMES)
            with killed:
                train(out)
            train(out)
            (run,) = (path for path in out.iterdir() if path.name[0] != ".")
            found = content(run)
            odd = [name for name in {**found, **whole} if found.get(name) != whole.get(name)]
            assert not odd, f"killed at write {write}: {odd}"
        assert write > 30


@pytest.mark.slow
def test_kills_at_any_moment_lose_nothing(tmp_path: Path):
    """Real ones, of real processes; CANARY_KILLS says how many."""
    whole, random_ = content(train(tmp_path / "whole", log="tensorboard")), random.Random(0)
    kills, out = 0, tmp_path / "killed"
    path = os.pathsep.join([str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    script = (
        "import sys; from pathlib import Path; from attacks.test_kills import train\n"
        "train(Path(sys.argv[1]), log='tensorboard')"
    )
    while kills < int(os.environ.get("CANARY_KILLS", "20")):
        process = subprocess.Popen(
            [sys.executable, "-c", script, str(out)], env=os.environ | {"PYTHONPATH": path}
        )
        time.sleep(random_.uniform(0, SECONDS))
        process.kill()
        kills += process.wait() == -signal.SIGKILL
        if process.returncode == 0:
            (run,) = (path for path in out.iterdir() if path.name[0] != ".")
            assert content(run).keys() == whole.keys()
            assert {k: v for k, v in content(run).items() if v != whole[k]} == {}
            out = tmp_path / f"killed-{kills}"
