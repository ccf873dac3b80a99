"""Kills at every write of a command's life: the next command heals it, bit-equal, with nothing left
behind or lost."""

import os
import shutil
import signal
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from attacks.attack import Attack
from attacks.death import Death, Mortal
from attacks.nursery import Nursery
from attacks.small import ALGORITHM, know_the_study, reproducing, training
from attacks.warm import canary, warm
from canary.certification.verify import verify_file
from canary.export import numpy_policy
from canary.runs import checkpoint, directory, lock
from canary.runs.files import TEMPORARY
from canary.studies import store

CODES = {"certify": (0, 1)}  # 1: not SATISFIED
CACHE = Path(__file__).resolve().parents[2] / ".cache" / "attacks"  # of compiled programs
CHAINED = 0.25  # so often the command that goes on is killed as well


class Kills(Attack):
    """One command, killed at a write and run again, until it ends; in this process, which outlives
    its death."""

    how = "killed"

    def __init__(self, command: str, tries: int):
        self.name, self.tries, self._command = f"{self.how}: {command}", tries, command

    def prepare(self, folder: Path) -> None:
        """Once without a kill: what is to come out of it, and how many writes it has."""
        self._folder, self._resources = folder, ExitStack()
        self._start()
        if self._command in ("certify", "export", "evaluate"):
            code, said, _ = self._live(training(folder / "original"))
            assert code == 0, said
            (self._original,) = (folder / "original").iterdir()
        whole = self._place("whole")
        code, said, self._writes = self._live(self._arguments(whole))
        assert code in CODES.get(self._command, (0,)), said
        self._whole = self._result(whole)

    def _start(self) -> None:
        know_the_study()
        self._resources.enter_context(warm(ALGORITHM))

    def _live(self, arguments: list[str]) -> tuple[int, str, int]:
        """A life without a kill: its exit code, what it said, and how many writes it had."""
        with Mortal(0) as life:
            said = canary(*arguments, folder=self._folder)
        return said.code, said.err, life.writes

    def close(self) -> None:
        self._resources.close()

    def attempt(self, number: int, random: np.random.Generator) -> str | None:
        """Try number n dies at write n, so that all are tried in turn; the second time round in the
        middle of writes."""
        turn, write = divmod(number, self._writes)
        place, deaths = self._place("attempt"), [(write + 1, turn % 2 == 1)]
        while random.random() < CHAINED:
            deaths.append((int(random.integers(1, self._writes + 1)), random.random() < 0.5))
        try:
            problem = self._die(place, deaths) or self._compare(place)
        except (Exception, Death) as error:
            problem = f"{type(error).__name__}: {error}"
        return problem and f"killed at {deaths}: {problem}"

    def _die(self, place: Path, deaths: list[tuple[int, bool]]) -> str | None:
        for write, torn in [*deaths, (0, False)]:
            code, said = self._run(place, write, torn)
            expected = (*CODES.get(self._command, (0,)), *((-signal.SIGKILL,) if write else ()))
            if code not in expected:
                return f"exit code {code}: {said[-300:]}"
        return None

    def _run(self, place: Path, write: int, torn: bool) -> tuple[int, str]:
        with Mortal(write, torn=torn):
            said = canary(*self._arguments(place), folder=self._folder)
            return said.code, said.err
        return -signal.SIGKILL, ""

    def _place(self, name: str) -> Path:
        place = self._folder / name
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir()
        if self._command in ("certify", "export", "evaluate"):
            shutil.copytree(self._original, place / "run")
        return place

    def _arguments(self, place: Path) -> list[str]:
        run = str(place / "run")
        match self._command:
            case "train":
                for draft in place.glob(".*.draft"):  # as if a minute had gone by
                    os.utime(draft, (0, 0))
                begun = [path for path in place.iterdir() if path.name[0] != "."]
                return ["train", "--resume", str(begun[0]), "--quiet"] if begun else training(place)
            case "certify":
                return ["certify", run, "--episodes", "50", "--seed", "3", "--quiet"]
            case "export":
                return ["export", run, "--format", "numpy", "--quiet"]
            case "evaluate":
                return ["evaluate", run, "--episodes", "20", "--video", "--quiet"]
        for draft in place.glob("runs/killed/*/.*.draft"):
            os.utime(draft, (0, 0))
        return reproducing(place)

    def _compare(self, place: Path) -> str | None:
        found, left = self._result(place), []
        for path in place.rglob("*"):
            if (
                TEMPORARY.fullmatch(path.name)
                or path.name in (lock.NAME,)
                or path.name.endswith(".draft")
            ):
                left.append(path.name)
        if left:
            return f"left behind: {left}"
        odd = sorted(
            name for name in {**found, **self._whole} if found.get(name) != self._whole.get(name)
        )
        more = [
            sorted(found[name] ^ self._whole[name])
            for name in odd
            if isinstance(found.get(name), set)
        ]
        return f"differs from one that was left alone in {odd} {more}" if odd else None

    def _result(self, place: Path) -> dict[str, Any]:
        """What has to come out: every file by its name, those of numbers by their bits; times and
        names may differ."""
        found: dict[str, Any] = {}
        for config in place.rglob("manifest.json"):
            found |= run_state(config.parent)
        match self._command:
            case "certify":
                said = verify_file(place / "run")
                found |= {
                    "valid": said["valid"],
                    "verdict": said["verdict"],
                    "sentence": said["sentence"],
                }
            case "export":
                policy = numpy_policy.read_checked(
                    place / "run" / "exports" / f"policy-seed{5}.npz"
                )
                found |= {"export": policy}
            case "evaluate":
                found |= {"video": (place / "run" / "video.gif").read_bytes()}
            case "reproduce":
                group = place / "results" / "killed" / "a"
                record = store.read_row(group)
                assert record is not None
                for seed in record["seeds"].values():
                    seed.pop("train_seconds")
                found |= {"record": record, "files": _names(place / "results")}
        return found


def run_state(run: Path) -> dict[str, Any]:
    """What training made: the newest state and both tables, to the bit, and which files there
    are."""
    newest = checkpoint.checkpoints(run / "checkpoints")[0]
    with np.load(newest, allow_pickle=False) as archive:
        arrays = {name: archive[name].tobytes() for name in archive.files}
    tables = {kind: directory.read(run, kind).rows() for kind in directory.COLUMNS}
    picture = (
        {"training.png": (run / "training.png").read_bytes()}
        if (run / "training.png").exists()
        else {}
    )
    # An earlier one is kept
    names = {name for name in _names(run) if not name.startswith("certificate-")}
    return {"state": (newest.name, arrays), "run": names, **tables, **picture}


def _names(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*")}


class RealKills(Kills):
    """The same in a process of its own, which SIGKILL ends: at a write, or at any moment."""

    how = "SIGKILL"

    def _start(self) -> None:
        self._nursery = Nursery(CACHE)
        self._resources.callback(self._nursery.close)

    def prepare(self, folder: Path) -> None:
        """Once more when all programs are compiled: that is how long a life takes."""
        super().prepare(folder)
        self._live(self._arguments(self._place("whole")))
        assert self._compare(folder / "whole") is None

    def _live(self, arguments: list[str]) -> tuple[int, str, int]:
        (ended,) = self._nursery.run({"arguments": arguments, "folder": str(self._folder)})
        self._seconds = ended["seconds"]
        return ended["code"], ended["said"], ended["writes"]

    def attempt(self, number: int, random: np.random.Generator) -> str | None:
        """Every third at any moment; the others at writes that are drawn, half of them in the
        middle."""
        self._random, self._at_any_moment = random, number % 3 == 2
        return super().attempt(int(random.integers(2 * self._writes)), random)

    def _run(self, place: Path, write: int, torn: bool) -> tuple[int, str]:
        command: dict[str, Any] = {"arguments": self._arguments(place), "folder": str(self._folder)}
        if write and self._at_any_moment:
            command["seconds"] = float(self._random.uniform(0, self._seconds))
        (ended,) = self._nursery.run(
            command | ({} if "seconds" in command else {"write": write, "torn": torn})
        )
        return ended["code"], ended["said"]


SIMULATED = {"train": 200, "certify": 45, "export": 33, "evaluate": 20, "reproduce": 100}
REAL = {"train": 100, "certify": 30, "export": 20, "evaluate": 20, "reproduce": 30}
ATTACKS = [Kills(*item) for item in SIMULATED.items()] + [RealKills(*item) for item in REAL.items()]
