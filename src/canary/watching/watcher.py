"""Who watches a run while it trains: the user's callback, and logs for other tools.

A resumed run writes its CSV and TensorBoard logs anew from its tables, so a kill leaves them neither
ahead of the checkpoint nor behind it.
"""

import csv
import importlib
import importlib.util
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from canary.constraints import Constraint
from canary.errors import CanaryError, nearest
from canary.runs import files
from canary.watching.update import Update, updates_of

Callback = Callable[[Update], bool | None]
"""Called after every update. Return False to stop there; the run is saved and can be resumed."""
PACKAGES = {"csv": None, "tensorboard": "tensorboardX", "wandb": "wandb"}
"""The logs by name, and the package that each needs."""


class Log:
    """Gets every update; `steps` were done and logged before it was opened, as `earlier`."""

    def __init__(self, run: Path, about: dict[str, Any], steps: int, earlier: Iterable[Update]): ...
    def write(self, update: Update) -> None: ...
    def close(self) -> None: ...


class CsvLog(Log):
    """RUN/log.csv: a row per seed and update; unknown numbers are empty."""

    def __init__(self, run: Path, about: dict[str, Any], steps: int, earlier: Iterable[Update]):
        files.write_atomically(run / "log.csv", b"", within=run)
        self._file = (run / "log.csv").open("a", newline="")
        self._columns: tuple[str, ...] = ()
        for update in earlier:
            self.write(update)

    def write(self, update: Update) -> None:
        row = csv.writer(self._file, lineterminator="\n").writerow
        if not self._columns:
            self._columns = tuple(update.seeds[0].named())
            row(("seed", "update", "steps", *self._columns))
        for seed in update.seeds:
            numbers, head = seed.numbers(), (seed.seed, update.number, update.steps)
            row((*head, *(numbers.get(name, "") for name in self._columns)))
        self._file.flush()

    def close(self) -> None:
        self._file.close()


class TensorBoardLog(Log):
    """RUN/tensorboard/seed-N: a curve per seed and number; see `tensorboard --logdir RUN`."""

    def __init__(self, run: Path, about: dict[str, Any], steps: int, earlier: Iterable[Update]):
        make = importlib.import_module("tensorboardX").SummaryWriter
        self._writers = {}
        for seed in about["training"]["seeds"]:
            folder = run / "tensorboard" / f"seed-{seed}"
            files.make_folder(folder, within=run)
            for path in folder.glob("events.*"):
                path.unlink(missing_ok=True)
            self._writers[seed] = make(str(folder), flush_secs=10)
        for update in earlier:
            self.write(update)

    def write(self, update: Update) -> None:
        for seed in update.seeds:
            for name, number in seed.numbers().items():
                self._writers[seed.seed].add_scalar(name, number, update.steps)

    def close(self) -> None:
        for writer in self._writers.values():
            writer.close()


class WandbLog(Log):
    """A run of the project `canary` (or $WANDB_PROJECT), named as the run, with a curve per number
    and seed. W&B's own process has every record at once."""

    def __init__(self, run: Path, about: dict[str, Any], steps: int, earlier: Iterable[Update]):
        files.refuse_links(run / "wandb", run)
        wandb: Any = importlib.import_module("wandb")
        try:
            self._run = wandb.init(
                project=os.environ.get("WANDB_PROJECT", "canary"), name=run.name, id=run.name[:64], dir=str(run),
                resume="allow" if steps else None, tags=about["tags"] or None, config=about,
                settings=wandb.Settings(console="off", silent=True),
            )  # fmt: skip
        except Exception as error:  # not logged in, no network, no room
            raise CanaryError(
                f"Weights & Biases does not start ({error}); WANDB_MODE=offline writes into the "
                "run, to be synced later."
            ) from error
        self._run.define_metric("*", step_metric="steps")

    def write(self, update: Update) -> None:
        means = {
            name: update.mean(name) for name in ("return_mean", "cost_mean", "constraint_value")
        }
        numbers = {name: mean for name, mean in means.items() if mean is not None}
        for seed in update.seeds:
            numbers |= {
                f"seed-{seed.seed}/{name}": number for name, number in seed.numbers().items()
            }
        self._run.log({"steps": update.steps, **numbers}, step=update.number)

    def close(self) -> None:
        self._run.finish()


LOGS: dict[str, type[Log]] = {"csv": CsvLog, "tensorboard": TensorBoardLog, "wandb": WandbLog}


class Watcher:
    """Passes the updates of a run on to a callback and to logs."""

    def __init__(self, callback: Callback | None = None, log: Sequence[str] | str = ()):
        if callback is not None and not callable(callback):
            raise CanaryError(
                f"The callback must be a function of one update, not {callback!r:.60}."
            )
        self._callback = callback
        self._logs: list[Log] = []
        self.log_to(log)

    def log_to(self, log: Sequence[str] | str) -> None:
        """Choose the logs by name; a missing package is found now."""
        self.log = tuple(dict.fromkeys([log] if isinstance(log, str) else log))
        for name in self.log:
            if name not in LOGS:
                raise CanaryError(f"There is no log called {name!r:.60}{nearest(str(name), LOGS)}")
            package = PACKAGES[name]
            if package is not None and importlib.util.find_spec(package) is None:
                raise CanaryError(
                    f"The log {name} needs the package {package}: pip install 'canary-rl[{name}]'."
                )

    @property
    def sees_every_update(self) -> bool:
        """Whether updates must be done one at a time, so that a stop takes effect at once."""
        return self._callback is not None

    def open(
        self,
        run: Path,
        about: dict[str, Any],
        constraint: Constraint,
        updates: int,
        done: tuple[pl.DataFrame, pl.DataFrame],
    ) -> None:
        """Before the first update. `about` is the run's configuration with its tags, `done` the
        metrics and episodes so far."""
        self._run, self._constraint, self._updates = run, constraint, updates
        rows, episodes = done
        steps = 0 if rows.is_empty() else int(rows.select(pl.col("steps").max()).item())
        self._logs = [
            LOGS[name](run, about, steps, self._records(rows, episodes)) for name in self.log
        ]

    def _records(self, rows: pl.DataFrame, episodes: pl.DataFrame) -> Iterable[Update]:
        return updates_of(rows, episodes, self._constraint, run=self._run, updates=self._updates)

    def see(self, rows: pl.DataFrame, episodes: pl.DataFrame) -> bool:
        """Pass on the updates of a chunk; returns whether training shall go on."""
        if not self._logs and self._callback is None:
            return True
        goes_on = True
        for update in self._records(rows, episodes):
            for log in self._logs:
                log.write(update)
            if self._callback is not None:
                goes_on = _answer(self._callback(update)) and goes_on
        return goes_on

    def close(self) -> None:
        for log in self._logs:
            log.close()
        self._logs = []


def _answer(answer: Any) -> bool:
    if answer is None or isinstance(answer, bool | np.bool_):
        return answer is None or bool(answer)
    raise CanaryError(
        f"The callback returned {answer!r:.60}; return False to stop training, and None or True to "
        "go on."
    )
