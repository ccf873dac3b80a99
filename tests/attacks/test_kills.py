"""A run that is killed and resumed equals one that was left alone: tables, states and logs."""

import csv
import json
import random
import subprocess
import time
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from attacks.death import Mortal
from attacks.warm import warm
from canary.config.config import make_config
from canary.runs.directory import read_manifest
from canary.runs.runner import new_run, train_run
from tiny_runs import command, environment

SMALL = (
    "env.map=SFF/FHF/FFG", "env.horizon=12", "algo.hidden=[4]", "training.merge_capacity=0", "training.environments=5",
    "training.rollout_length=20", "training.checkpoint_seconds=0", "training.chunk=1", "training.keep_checkpoints=5",
)  # fmt: skip
CONFIG = make_config("IcyLake", "ppo", overrides=SMALL, seeds=(5,), total_steps=200)
# What may differ between equal runs: times, processes, and the digest of what contains them
VOLATILE = {"started", "finished", "sha256", "command", "train_seconds", "wall_seconds"}


def content(out: Path) -> dict[str, Any]:
    """What must be equal of every file, by its name in the run."""
    found: dict[str, Any] = {}
    (run,) = (path.parent for path in out.glob("*/manifest.json"))
    for path in (path for path in run.rglob("*") if path.is_file()):
        name = path.relative_to(run).as_posix()
        if path.suffix == ".tmp" or path.name == ".lock":
            continue  # half of a file that a kill left
        if path.suffix == ".parquet":
            found[name] = pl.read_parquet(path).to_dicts()
        elif path.name == "manifest.json":
            found |= {k: v for k, v in json.loads(path.read_text()).items() if k not in VOLATILE}
        elif path.suffix == ".csv":
            found[name] = list(csv.DictReader(path.read_text().splitlines()))
        else:  # the time of a run's name may be in a summary
            found[name] = path.read_bytes() if path.suffix == ".npz" else path.exists()
    return found


def train(out: Path) -> dict[str, Any]:
    """Two updates with a checkpoint after each, or the rest of them."""
    if manifests := list(out.glob("*/manifest.json")):
        run = manifests[0].parent
    else:
        run = new_run(CONFIG, out, log=["csv"])
    train_run(run, CONFIG, quiet=True)
    return content(out)


def differing(found: dict[str, Any], whole: dict[str, Any]) -> list[str]:
    return [name for name in {**found, **whole} if found.get(name) != whole.get(name)]


def test_a_kill_between_any_two_writes_loses_nothing(tmp_path: Path):
    with warm():
        whole, write = train(tmp_path / "whole"), 0
        assert {"checkpoints/kept-00000002.npz", "log.csv", "episodes.parquet"} <= whole.keys()
        killed = Mortal(1)
        while write == 0 or killed.is_dead:
            write += 1
            killed = Mortal(write)
            with killed:
                train(tmp_path / str(write))
            odd = differing(train(tmp_path / str(write)), whole)
            assert not odd, f"killed at write {write}: {odd}"
        assert write > 12


@pytest.mark.slow
def test_a_process_killed_at_any_moment_loses_nothing(tmp_path: Path):
    """SIGKILL, until the command has come to its end between the kills."""
    settings = [word for setting in SMALL for word in ("--set", setting)]
    words = "train --algo ppo --seeds 5-5 --total-steps 20000 --log csv --quiet --no-final-check"
    start = (*words.split(), *settings)

    def attempt(out: Path, seconds: float | None) -> None:
        run = next((path.parent.name for path in out.glob("*/manifest.json")), None)
        how = start if run is None else ("train", "--resume", run, "--quiet", "--no-final-check")
        done = subprocess.Popen(command(*how, "--out", str(out)), env=environment())
        try:
            assert done.wait(seconds) == 0
        except subprocess.TimeoutExpired:
            done.kill()
            done.wait()

    began = time.monotonic()
    attempt(tmp_path / "whole", None)
    whole, seconds = content(tmp_path / "whole"), time.monotonic() - began
    out, kills = tmp_path / "killed", 0
    while not (made := list(out.glob("*/manifest.json"))) or (
        read_manifest(made[0].parent)["status"] != "finished"
    ):
        attempt(out, random.uniform(0.3, 1.2) * seconds)
        kills += 1
    assert kills
    attempt(out, None)  # the last kill may have come before the summary
    assert not differing(content(out), whole)
