"""Watch a run while it trains: a record per update, for the user's callback and for logs.

A log is a context that yields a function of one update. A resumed run rewrites its CSV and
TensorBoard logs from its tables, so they agree with the checkpoint after a kill.
"""

import csv
import importlib
import importlib.util
import math
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl

from canary.constraints import from_dict
from canary.errors import CanaryError, nearest
from canary.runs import files

MEASURED = ("return_mean", "cost_mean", "constraint_value")


@dataclass(frozen=True, kw_only=True)
class SeedUpdate:
    """One update of one seed. Its numbers describe the whole episodes that ended in the batch; None
    if none ended."""

    seed: int
    episodes: int
    return_mean: float | None
    cost_mean: float | None
    """None with several costs, whose means over the window are among the metrics."""
    constraint_value: float | None
    """The constrained quantity: the share of violations, the mean cost or its CVaR. With several
    constraints, the worst in units of its allowed value."""
    metrics: dict[str, float] = field(repr=False)
    """Metrics of the algorithm; NaN if a number has no meaning."""

    def numbers(self) -> dict[str, float | None]:
        """All numbers by their names in logs; None if unknown or not finite. A metric of the algorithm
        whose name is taken, such as the mean cost over several batches, is `algorithm_NAME`."""
        found = {name: getattr(self, name) for name in ("episodes", *MEASURED)}
        own = {f"algorithm_{k}" if k in found else k: v for k, v in self.metrics.items()}
        return {
            name: None if value is None or not math.isfinite(value) else float(value)
            for name, value in (found | own).items()
        }


@dataclass(frozen=True, kw_only=True)
class Update:
    """One update of all seeds."""

    run: Path
    number: int
    """Updates done, including this one."""
    updates: int
    """Planned updates."""
    steps: int
    """Environment steps per seed so far."""
    seeds: tuple[SeedUpdate, ...]

    def mean(self, name: str) -> float | None:
        """A number, such as "return_mean", averaged over the seeds that have it."""
        found = [value for seed in self.seeds if (value := seed.numbers().get(name)) is not None]
        return sum(found) / len(found) if found else None


def updates_of(
    rows: pl.DataFrame, episodes: pl.DataFrame, *, config: dict[str, Any], run: Path
) -> Iterator[Update]:
    """The updates in rows of a run's tables: metrics (a row per seed and update) and episodes."""
    training, constraint = config["training"], from_dict(config["constraint"])
    planned = training["total_steps"] // (training["environments"] * training["rollout_length"])
    whole = episodes.filter(pl.col("valid")).partition_by("seed", "iteration", as_dict=True)

    def of_seed(row: dict[str, Any]) -> SeedUpdate:
        seed, iteration, _ = (row.pop(name) for name in ("seed", "iteration", "steps"))
        ended = whole.get((seed, iteration))
        costs = None if ended is None else ended["cost"].to_numpy()
        return SeedUpdate(
            seed=seed,
            episodes=0 if costs is None else len(costs),
            return_mean=None if ended is None else float(ended["return"].to_numpy().mean()),
            cost_mean=None if costs is None or costs.ndim > 1 else float(costs.mean()),
            constraint_value=None if costs is None else constraint.measure(costs),
            metrics={name: float(value) for name, value in row.items()},
        )

    parts = rows.sort("iteration", "seed").partition_by("iteration", maintain_order=True)
    for part in parts:
        number, steps = int(part["iteration"][0]) + 1, int(part["steps"][0])
        seeds = tuple(map(of_seed, part.to_dicts()))
        yield Update(run=run, number=number, updates=planned, steps=steps, seeds=seeds)


Callback = Callable[[Update], bool | None]
"""Called after every update. Return False to stop; the run is saved and can be resumed."""
Write = Callable[[Update], None]


@contextmanager
def csv_log(run: Path, config: dict[str, Any]) -> Iterator[Write]:
    """RUN/log.csv: a row per seed and update; unknown numbers are empty."""
    path = run / "log.csv"
    files.write_atomically(path, b"")
    with path.open("a", newline="") as file:
        row = csv.writer(file, lineterminator="\n").writerow

        def write(update: Update) -> None:
            if file.tell() == 0:
                row(("seed", "update", "steps", *update.seeds[0].numbers()))
            for seed in update.seeds:
                row((seed.seed, update.number, update.steps, *seed.numbers().values()))
            file.flush()

        yield write


@contextmanager
def tensorboard_log(run: Path, config: dict[str, Any]) -> Iterator[Write]:
    """RUN/tensorboard/seed-N: a curve per seed and number; see `tensorboard --logdir RUN`."""
    make = importlib.import_module("tensorboardX").SummaryWriter
    shutil.rmtree(run / "tensorboard", ignore_errors=True)
    writers = {
        seed: make(str(run / "tensorboard" / f"seed-{seed}"), flush_secs=10)
        for seed in config["training"]["seeds"]
    }

    def write(update: Update) -> None:
        for seed in update.seeds:
            for name, number in seed.numbers().items():
                if number is not None:
                    writers[seed.seed].add_scalar(name, number, update.steps)

    try:
        yield write
    finally:
        for writer in writers.values():
            writer.close()


@contextmanager
def wandb_log(run: Path, config: dict[str, Any]) -> Iterator[Write]:
    """A run of the project `canary` (or $WANDB_PROJECT) with the name of the run, and a curve per
    number and seed."""
    wandb: Any = importlib.import_module("wandb")
    try:
        log = wandb.init(
            project=os.environ.get("WANDB_PROJECT", "canary"),
            name=run.name,
            id=run.name[:64],
            dir=str(run),
            resume="allow",
            config=config,
            settings=wandb.Settings(console="off", silent=True),
        )
    except Exception as error:  # not logged in, no network, no room
        raise CanaryError(
            f"Weights & Biases does not start ({error}); with WANDB_MODE=offline it writes into the "
            "run, and you sync it later."
        ) from error
    log.define_metric("*", step_metric="steps")

    def write(update: Update) -> None:
        numbers = {name: update.mean(name) for name in MEASURED} | {
            f"seed-{seed.seed}/{name}": number
            for seed in update.seeds
            for name, number in seed.numbers().items()
        }
        known = {name: number for name, number in numbers.items() if number is not None}
        log.log({"steps": update.steps, **known}, step=update.number)

    try:
        yield write
    finally:
        log.finish()


LOGS = {"csv": csv_log, "tensorboard": tensorboard_log, "wandb": wandb_log}
PACKAGES = {"tensorboard": "tensorboardX", "wandb": "wandb"}


def check_logs(names: Sequence[str]) -> tuple[str, ...]:
    """The names of logs, each once; raises if one is unknown or its package is missing."""
    for name in names:
        if name not in LOGS:
            raise CanaryError(f"There is no log called {name!r:.60}{nearest(name, LOGS)}")
        package = PACKAGES.get(name)
        if package is not None and importlib.util.find_spec(package) is None:
            raise CanaryError(
                f"The log {name} needs the package {package}: pip install 'canary-rl[{name}]'."
            )
    return tuple(dict.fromkeys(names))


@contextmanager
def watching(
    run: Path,
    config: dict[str, Any],
    done: tuple[pl.DataFrame, pl.DataFrame],
    callback: Callback | None = None,
    logs: Sequence[str] = (),
) -> Iterator[Callable[[pl.DataFrame, pl.DataFrame], bool]]:
    """Yields a function that passes the updates of a chunk, from its metrics and episodes, to callback
    and logs, and returns whether to continue. `config` is the manifest's, `done` the tables so far."""

    def updates(*tables: pl.DataFrame) -> Iterator[Update]:
        return updates_of(*tables, config=config, run=run)

    with ExitStack() as opened:
        listeners: list[Callback] = []
        for name in logs:
            write = opened.enter_context(LOGS[name](run, config))
            listeners.append(write)
            if name != "wandb":  # its server has the earlier updates
                for update in updates(*done):
                    write(update)
        if callback is not None:
            listeners.append(callback)

        def see(*chunk: pl.DataFrame) -> bool:
            found = updates(*chunk) if listeners else ()
            answers = [listen(update) for update in found for listen in listeners]
            return all(answer is None or answer for answer in answers)

        yield see
