"""Logs for other tools: CSV, TensorBoard and Weights & Biases, written into the run while it
trains.

A run that goes on after a stop repeats the updates since its last checkpoint; each log forgets
those first.
"""

import csv
import importlib
import importlib.util
import io
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

from canary.errors import CanaryError, nearest
from canary.runs import files
from canary.watching.update import Update

HEAD = ("seed", "update", "steps")


class Writer(Protocol):
    def write(self, update: Update) -> None: ...

    def close(self) -> None: ...


Opener = Callable[[Path, dict[str, Any], int], Writer]
"""(run, configuration with name and tags, updates done) -> what writes the next ones."""


class CsvWriter:
    """RUN/log.csv: a row per seed and update. Numbers that are not known are empty."""

    def __init__(self, run: Path, about: dict[str, Any], first: int):
        self._path = run / "log.csv"
        self._columns: tuple[str, ...] = ()
        self._file: io.TextIOWrapper | None = None
        if self._path.exists():
            self._forget_after(first)

    def _forget_after(self, first: int) -> None:
        text = files.read_bytes(self._path, 1 << 34).decode(errors="replace")
        head, *rows = list(csv.reader(io.StringIO(text))) or [[]]
        if tuple(head[:3]) != HEAD:
            raise CanaryError(f"{self._path} is no log of canary's; move it away.")
        if len(set(head)) < len(head):
            raise CanaryError(
                f"{self._path} has two columns of one name, as an earlier version wrote it; move it "
                "away, and a new log goes on from here."
            )
        whole = [row for row in rows if len(row) == len(head)]  # a kill may have cut the last one
        kept = [row for row in whole if row[1].isdecimal() and int(row[1]) <= first]
        self._columns = tuple(head)
        files.write_atomically(self._path, _lines([head, *kept]).encode(), within=self._path.parent)

    def write(self, update: Update) -> None:
        rows = []
        for seed in update.seeds:
            numbers = seed.numbers()
            if not self._columns:
                self._columns = (*HEAD, *seed.named())
                files.write_atomically(
                    self._path, _lines([self._columns]).encode(), within=self._path.parent
                )
            head = [seed.seed, update.number, update.steps]
            rows.append([*head, *(numbers.get(name, "") for name in self._columns[3:])])
        self._open().write(_lines(rows))
        self._open().flush()

    def _open(self) -> io.TextIOWrapper:
        if self._file is None:
            descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | files.NO_FOLLOW)
            self._file = os.fdopen(descriptor, "w", newline="")
        return self._file

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


class TensorBoardWriter:
    """RUN/tensorboard/seed-N: a curve per seed and number; look at it with `tensorboard --logdir
    RUN`."""

    def __init__(self, run: Path, about: dict[str, Any], first: int):
        self._run, self._batch = run, _batch(about)
        self._purge = first * self._batch + 1 if first else None
        self._writers: dict[int, Any] = {}

    def write(self, update: Update) -> None:
        for seed in update.seeds:
            for name, number in seed.numbers().items():
                self._of(seed.seed).add_scalar(name, number, update.steps)

    def _of(self, seed: int) -> Any:
        if seed not in self._writers:
            SummaryWriter = importlib.import_module("tensorboardX").SummaryWriter
            folder = self._run / "tensorboard" / f"seed-{seed}"
            files.make_folder(folder, within=self._run)
            self._writers[seed] = SummaryWriter(str(folder), purge_step=self._purge)
        return self._writers[seed]

    def close(self) -> None:
        for writer in self._writers.values():
            writer.close()


class WandbWriter:
    """A run of the project `canary` (or $WANDB_PROJECT), named as the run, with a curve per number
    and seed."""

    def __init__(self, run: Path, about: dict[str, Any], first: int):
        wandb: Any = importlib.import_module("wandb")
        files.refuse_links(run / "wandb", run)
        settings = wandb.Settings(console="off", silent=True)  # the terminal is ours
        try:
            self._run = wandb.init(
                project=os.environ.get("WANDB_PROJECT", "canary"), name=run.name, id=run.name[:64], dir=str(run),
                resume="allow" if first else None, tags=about["tags"] or None, config=about, settings=settings,
            )  # fmt: skip
        except Exception as error:  # not logged in, no network, no room
            raise CanaryError(
                f"Weights & Biases does not start ({error}); WANDB_MODE=offline writes into the "
                "run, to be synced later."
            ) from error
        self._run.define_metric("*", step_metric="steps")

    def write(self, update: Update) -> None:
        numbers = {
            f"seed-{seed.seed}/{name}": number
            for seed in update.seeds
            for name, number in seed.numbers().items()
        }
        means = {
            name: update.mean(name) for name in ("return_mean", "cost_mean", "constraint_value")
        }
        known = {name: mean for name, mean in means.items() if mean is not None}
        self._run.log({"steps": update.steps, **known, **numbers}, step=update.number)

    def close(self) -> None:
        self._run.finish()


WRITERS: dict[str, tuple[Opener, str]] = {
    "csv": (CsvWriter, ""),
    "tensorboard": (TensorBoardWriter, "tensorboardX"),
    "wandb": (WandbWriter, "wandb"),
}
"""By name: what opens it, and the package that it needs."""


def writer_named(name: str) -> Opener:
    """What writes that log; a sentence if there is no such log, or its package is not installed."""
    if name not in WRITERS:
        raise CanaryError(f"There is no log called {name!r:.60}{nearest(str(name), WRITERS)}")
    opener, package = WRITERS[name]
    if package:
        import importlib.util

        if importlib.util.find_spec(package) is None:
            raise CanaryError(
                f"The log {name} needs the package {package}: pip install 'canary-rl[{name}]'."
            )
    return opener


def _batch(about: dict[str, Any]) -> int:
    training = about["training"]
    return int(training["environments"]) * int(training["rollout_length"])


def _lines(rows: Sequence[Sequence[Any]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()
