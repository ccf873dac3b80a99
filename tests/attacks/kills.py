"""SIGKILL at a random write of a command's life: the next command heals it, bit-equal, with nothing left behind."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

from canary.certification.check import verify_file
from canary.export import numpy_policy
from canary.runs import checkpoint, directory
from canary.runs.files import TEMPORARY
from runs.untrained_runs import untrained_run
from tiny_runs import FLAGS

TESTS = Path(__file__).resolve().parents[1]
MOST_WRITES = {"train": 60, "certify": 20, "export": 8, "evaluate": 6}


def canary(write: int, *arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """A command that dies at its N-th write, or lives (0)."""
    path = os.pathsep.join([str(TESTS), str(TESTS.parent / "src")])
    settings = {
        "PYTHONPATH": path,
        "JAX_COMPILATION_CACHE_DIR": str(folder / "cache"),
        "JAX_PLATFORMS": "cpu",
    }
    command = [sys.executable, "-m", "attacks.victim", str(write), *arguments]
    return subprocess.run(
        command,
        env=os.environ | settings,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


class Kills:
    """One command, killed and run again."""

    def __init__(self, command: str, tries: int):
        self.name, self.tries, self._command = f"kills: {command}", tries, command

    def prepare(self, folder: Path) -> None:
        self._folder = folder
        if self._command == "train":
            done = canary(0, *self._train(folder / "whole"), folder=folder)
            assert done.returncode == 0, done.stderr
            (self._whole,) = (folder / "whole").iterdir()
        else:
            self._original = untrained_run(folder / "runs")

    def attempt(self, number: int, random: np.random.Generator) -> str | None:
        write = int(random.integers(1, MOST_WRITES[self._command] + 1))
        place = self._folder / "attempt"
        shutil.rmtree(place, ignore_errors=True)
        try:
            problem = (
                self._killed_training(place, write)
                if self._command == "train"
                else self._killed(place, write)
            )
        except Exception as error:
            problem = f"{type(error).__name__}: {error}"
        return problem and f"killed at write {write}: {problem}"

    @staticmethod
    def _train(out: Path) -> list[str]:
        often = ["--set", "training.checkpoint_seconds=0", "--set", "training.chunk=1", "--seeds", "1"]
        return ["train", *FLAGS, *often, "--quiet", "--out", str(out)]

    def _killed_training(self, place: Path, write: int) -> str | None:
        done = canary(write, *self._train(place), folder=self._folder)
        if done.returncode not in (0, -signal.SIGKILL):
            return f"exit code {done.returncode}: {done.stderr[-200:]}"
        runs = [path for path in place.iterdir() if path.name[0] != "."] if place.is_dir() else []
        again = ["train", "--resume", str(runs[0]), "--quiet"] if runs else self._train(place)
        done = canary(0, *again, folder=self._folder)
        if done.returncode != 0:
            return f"resuming ended with {done.returncode}: {done.stderr[-200:]}"
        (run,) = (path for path in place.iterdir() if path.name[0] != ".")
        if _state(run) != _state(self._whole):
            return "the resumed run differs from the one that was left alone"
        return _left(run, self._whole)

    def _killed(self, place: Path, write: int) -> str | None:
        run = shutil.copytree(self._original, place / "run")
        arguments = {
            "certify": ["certify", str(run), "--episodes", "50", "--seed", "3", "--quiet"],
            "export": ["export", str(run), "--format", "numpy", "--quiet"],
            "evaluate": ["evaluate", str(run), "--episodes", "20", "--video", "--quiet"],
        }[self._command]
        for number in (write, 0):
            done = canary(number, *arguments, folder=self._folder)
            if done.returncode not in ((0, 1, -signal.SIGKILL) if number else (0, 1)):
                return f"exit code {done.returncode}: {done.stderr[-200:]}"
        if self._command == "certify" and not verify_file(run)["valid"]:
            return f"the certificate is not valid: {verify_file(run)['problems']}"
        if self._command == "export":
            numpy_policy.read_checked(run / "exports" / "policy-seed0.npz")
        left = [
            path.name for path in run.rglob("*") if TEMPORARY.fullmatch(path.name) or path.name == ".lock"
        ]
        return f"left behind: {left}" if left else None


def _state(run: Path) -> Any:
    """What training made: the newest state and both tables, to the bit."""
    newest = checkpoint.checkpoints(run / "checkpoints")[0]
    with np.load(newest, allow_pickle=False) as archive:
        arrays = {name: archive[name].tobytes() for name in archive.files}
    return newest.name, arrays, [directory.read(run, kind).rows() for kind in directory.COLUMNS]


def _left(run: Path, whole: Path) -> str | None:
    names, expected = ({path.relative_to(one).as_posix() for path in one.rglob("*")} for one in (run, whole))
    same = {name for name in expected if not name.startswith("checkpoints/")}
    missing, more = same - names, {name for name in names - same if not name.startswith("checkpoints/check")}
    return f"missing {sorted(missing)}, left behind {sorted(more)}" if missing or more else None


ATTACKS = [Kills("train", 120), Kills("certify", 40), Kills("export", 20), Kills("evaluate", 20)]
