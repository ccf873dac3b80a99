"""`python tests/attacks/kills.py FOLDER KILLS`: SIGKILL at random moments of trainings (with kept
states and logs), certifications, sweeps and studies. Each is started again until it finishes, and
must then equal one that was left alone. The same command continues after a stop.

An attempt is a fork of this process, which has imported everything and computed nothing: the kills
fall into the work, not into the imports.
"""

import csv
import json
import os
import random
import re
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import matplotlib.pyplot  # noqa: F401
import polars as pl

import canary.studies.runner  # noqa: F401
from canary.certification.plan import Plan
from canary.certification.run import certify_run
from canary.cli.main import main as canary_command
from canary.config.config import make_config
from canary.runs.files import UNFINISHED
from canary.runs.runner import resume_run, start_run
from canary.studies.catalogue import ALL_STUDIES, Row, Study
from canary.watching import Watcher

SMALL = (
    "env.map=SFF/FHF/FFG", "env.horizon=12", "algo.hidden=[4]", "training.merge_capacity=0", "training.environments=5",
    "training.rollout_length=20", "training.checkpoint_seconds=0", "training.chunk=1",
)  # fmt: skip
ROW = Row(name="small", algorithm="ppo", overrides=SMALL, seeds=(3,), steps=300)
# How programs are compiled
QUICKLY = {"disable_most_optimizations": True, "persistent_cache_min_compile_time_secs": 0.0}
# What may differ between equal files: times, processes, and digests of what contains them.
VOLATILE = re.compile("started|finished|process|.*seconds?|time|sha256|earlier|command|run|blocks")


def train(out: Path, steps: int = 600, log: tuple[str, ...] = ("csv", "tensorboard")) -> None:
    for manifest in out.glob("*/manifest.json"):
        resume_run(manifest.parent, quiet=True)
        return
    settings = (*SMALL, "training.keep_checkpoints=5")
    config = make_config("IcyLake", "ppo", overrides=settings, seeds=(5,), total_steps=steps)
    start_run(config, out, quiet=True, watcher=Watcher(log=log))


def certify(out: Path) -> None:
    if not (out / "run").exists():
        (original,) = (out.parents[1] / "train" / "whole").glob("[!.]*")
        shutil.copytree(original, out / "copy", dirs_exist_ok=True)
        (out / "copy").rename(out / "run")
    plan = Plan(episodes=200, batch=20, early_stop=False)
    certify_run(out / "run", plan, evaluation_seed=7, quiet=True)


def command(out: Path, *words: str) -> None:
    places = ["--runs", str(out / "runs"), "--results", str(out / "results"), "--quiet"]
    assert canary_command([*words, *places]) == 0


SWEEP = ["sweep", "--algo", "ppo", "--seeds", "1", "--total-steps", "300", "--limit", "3.5,5.5"]
WORK: dict[str, Callable[[Path], None]] = {
    "train": train,
    "certify": certify,
    "sweep": lambda out: command(out, *SWEEP, *(f"--set={setting}" for setting in SMALL)),
    "reproduce": lambda out: command(out, "reproduce", "kills"),
}


def _lasting(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    return {name: value for name, value in pairs if not VOLATILE.fullmatch(name)}


def content(folder: Path) -> dict[str, Any]:
    """What must be equal of every file, by its name without the time in it."""
    found: dict[str, Any] = {}
    for path in (path for path in folder.rglob("*") if not path.is_dir()):
        place = path.relative_to(folder).as_posix()
        if any(map(UNFINISHED.fullmatch, place.split("/"))) or "/certificate-" in place:
            continue  # half of a file or run that a kill left
        name = re.sub(r"\d{8}-\d{6}(-\d+)?|blocks-\w+|out\.tf.*", "", place)
        if path.suffix == ".parquet":
            found[name] = pl.read_parquet(path).to_dicts()
        elif path.suffix == ".json":
            data = json.loads(path.read_text(), object_pairs_hook=_lasting)
            found |= {f"{name}: {key}": value for key, value in data.items()}
        elif path.suffix == ".csv":  # a table has a speed, the log nothing volatile
            with path.open(newline="") as file:
                found[name] = [_lasting([*row.items()]) for row in csv.DictReader(file)]
        elif path.suffix in (".npz", ".md"):
            found[name] = path.read_bytes()
        else:  # events of TensorBoard have times in them, but always as many bytes
            found[name] = path.stat().st_size if "tensorboard" in name else "exists"
    return found


def compare(out: Path) -> None:
    found, whole = content(out), content(out.parent / "whole")
    odd = [name for name in {**found, **whole} if found.get(name) != whole.get(name)]
    assert not odd, f"{out}: {odd}"


def attempt(work: Callable[[Path], None], out: Path, seconds: float = 1e9) -> int:
    """Do `work` in a fork and kill it after so many seconds; its exit code."""
    out.mkdir(parents=True, exist_ok=True)
    if (child := os.fork()) == 0:
        log = os.open(out.parent / "log.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        for stream in (1, 2):
            os.dup2(log, stream)
        for name, value in QUICKLY.items():
            jax.config.update(f"jax_{name}", value)
        jax.config.update("jax_compilation_cache_dir", str(out.parents[1] / "compiled"))
        try:
            work(out)
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    began, done, status = time.monotonic(), 0, 0
    while done == 0:
        time.sleep(0.005)
        if time.monotonic() - began >= seconds:
            os.kill(child, signal.SIGKILL)
        done, status = os.waitpid(child, os.WNOHANG)
    return os.waitstatus_to_exitcode(status)


def main(folder: Path, kills: int) -> int:
    """Print the kills of each kind, the chains that they made, and which of these came out wrong."""
    ALL_STUDIES["kills"] = Study(title="A small study", rows=(ROW,))
    state = folder / "kills.json"
    table = json.loads(state.read_text()) if state.exists() else {}
    for kind, work in WORK.items():
        if kind not in table:
            shutil.rmtree(folder / kind, ignore_errors=True)
            for name in ("whole", "again"):  # the first one may have to compile
                began = time.monotonic()
                assert attempt(work, folder / kind / name) == 0, f"see {folder / kind / 'log.txt'}"
            seconds = time.monotonic() - began
            table[kind] = {"kills": 0, "chains": 0, "wrong": [], "seconds": seconds}

    def try_once(kind: str, seconds: float) -> None:
        one = table[kind]
        out, began = folder / kind / str(one["chains"]), time.monotonic()
        code = attempt(WORK[kind], out, seconds)
        if code == -signal.SIGKILL:
            one["kills"] += 1
        else:
            one["chains"] += 1  # the machine may be busier now, or less busy
            one["seconds"] = (one["seconds"] + time.monotonic() - began) / 2
            one["wrong"] += [out.name] if code or attempt(compare, out) else []
        state.write_text(json.dumps(table))

    while sum(one["kills"] for one in table.values()) < kills:
        kind = min(table, key=lambda kind: table[kind]["kills"])
        try_once(kind, random.uniform(0, table[kind]["seconds"]))
    for kind, one in table.items():
        try_once(kind, 1e9)  # to the end of the chain under way
        print(f"{kind:<10}{one['kills']:>4} kills{one['chains']:>4} chains, wrong: {one['wrong']}")
    return any(one["wrong"] for one in table.values())


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), int(sys.argv[2])))
