"""Train: make a run, advance all its seeds chunk by chunk, and keep its files consistent.

A new run is a directory with a manifest and the states before the first update. Training and
resuming are the same: continue from the newest intact state.

Data are written before the record of them: tables, states, then the number of steps in the
manifest. After a kill between two writes, the run continues from its newest checkpoint.
"""

import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import numpy as np
import polars as pl

from canary.config.run_config import RunConfig, checked_config, config_to_dict
from canary.errors import CanaryError
from canary.exploration import initial_std, with_initial_std
from canary.runs import checkpoint, directory, seeds
from canary.runs.devices import device_name, prepare_devices
from canary.runs.directory import code_fingerprint, hold, stored_manifest, update_manifest
from canary.runs.environment import agree, describe_environment
from canary.runs.history import RecentHistory
from canary.runs.tables import COLUMNS, Kind, episode_rows, metrics_rows, read_table, write_table
from canary.runs.warm_start import Start
from canary.terminal.formatting import title
from canary.terminal.progress import TrainingProgress
from canary.watching import Callback, check_logs, watching

CHUNK_SECONDS = 2.0  # of a chunk; the display and Ctrl-C wait for its end
Rows = tuple[pl.DataFrame, pl.DataFrame]  # metrics and episodes of some updates


def new_run(
    config: RunConfig,
    out: Path,
    *,
    name: str | None = None,
    log: Sequence[str] = (),
    start: Start | None = None,
) -> Path:
    """Make and return a run directory below `out` with untrained seeds, or seeds that `start` from
    another run. Mistakes are found before anything is written."""
    logs, training = check_logs(log), config.training
    if name is not None:
        directory.check_name(out, name)
    prepare_devices()
    described = describe_environment(config.environment)
    chosen = initial_std(config)  # also for a warm start: the entropy bonus is proportional to it
    groups = seeds.SeedGroups(with_initial_std(config, chosen))
    groups.start()
    states, record = groups.stacked(), None
    if start is not None:
        states, record = start.begin(states, training.seeds)
    run = directory.create(
        out,
        config_to_dict(config) | {"environment": described},
        training.updates * training.batch,
        device=device_name(),
        name=name,
        log=logs,
        start=record,
        initial_std=chosen,
        fill=lambda run: checkpoint.save(checkpoint.checkpoint_path(run, 0), states),
    )
    agree(run, trust=True)  # its code was just imported and called
    return run


def train_run(
    run: Path,
    config: RunConfig,
    *,
    total_steps: int | None = None,
    callback: Callback | None = None,
    log: Sequence[str] = (),
    quiet: bool = False,
) -> RunConfig:
    """Train a run from its newest intact state, as if it had never stopped. Returns the
    configuration with its present plan; `total_steps` extends the plan.

    The manifest states whether training ended, was interrupted or failed. A run that fails before
    anything was trained is removed.
    """
    logs = check_logs(log)
    prepare_devices()
    with hold(run):
        notes: list[str] = []
        if total_steps is not None and total_steps != config.training.total_steps:
            config, notes = _extended(run, config, total_steps)
        elif stored_manifest(run)["status"] == "finished":
            return config
        training, constraint = config.training, config.constraint
        steps = training.updates * training.batch * len(training.seeds)
        heading = title(f"{config.algorithm_name} on {config.environment_name}", constraint.text)
        trained = _Trained(run, config)
        groups, began, status = trained.groups, time.monotonic(), "failed"
        try:
            with (
                TrainingProgress(heading, constraint, steps, quiet=quiet) as display,
                _interruptible(display) as interrupted,
            ):
                display.busy("preparing the seeds")
                for text in (*notes, *trained.restore()):
                    display.message(text, warning=True)
                if trained.update:
                    done = f"update {trained.update} of {training.updates}"
                    display.message(f"Resuming {run} after {done}.")
                logs = logs or stored_manifest(run)["log"]
                about = config_to_dict(config)
                with watching(run, about, trained.tables(), callback, logs) as see:
                    display.busy("compiling")
                    zero = np.int32(0)
                    jax.block_until_ready(
                        [groups.training.chunk(one, zero) for one in groups.states]
                    )
                    # A callback gets one update at a time, so that its stop takes effect at once
                    most = training.chunk if callback is None else 1
                    status = _advance(trained, most, display, interrupted, see)
        except KeyboardInterrupt:
            status = "interrupted"
        finally:
            if status == "failed" and not checkpoint.stored_updates(run):
                directory.discard(run)
            else:
                seconds = stored_manifest(run).get("wall_seconds", 0.0) + time.monotonic() - began
                now = datetime.now().astimezone().isoformat(timespec="seconds")
                update_manifest(run, status=status, finished=now, wall_seconds=round(seconds, 2))
    return config


def _extended(run: Path, config: RunConfig, total_steps: int) -> tuple[RunConfig, list[str]]:
    """Extend the plan, also in the manifest. Returns the configuration and a note on schedules."""
    training, manifest = config.training, stored_manifest(run)
    longer = checked_config(replace(config, training=replace(training, total_steps=total_steps)))
    updates, batch = longer.training.updates, training.batch
    if updates <= training.updates:
        raise CanaryError(
            f"{run} is planned for {training.total_steps:,} steps, and an update takes {batch:,}: "
            f"--total-steps must be at least {(training.updates + 1) * batch:,}, not "
            f"{total_steps:,}."
        )
    plan = manifest["config"]["training"] | {"total_steps": total_steps}
    stored = manifest["config"] | {"training": plan}
    update_manifest(run, config=stored, total_steps=updates * batch)
    return longer, [
        f"The plan is now {total_steps:,} steps instead of {training.total_steps:,}. Schedules such "
        "as learning rates run over the whole plan, so they go back to "
        f"{manifest['steps'] / (updates * batch):.0%}: the result differs from a run planned for "
        f"{total_steps:,} steps."
    ]


def _advance(
    trained: "_Trained",
    most: int,
    display: TrainingProgress,
    interrupted: threading.Event,
    see: Callable[..., bool],
) -> str:
    """Train in chunks of at most `most` updates until the end, an interruption or a stop by the
    callback. Returns the run's status."""
    config, training = trained.config, trained.config.training
    dead_zone = getattr(config.algorithm, "dead_zone", None)
    history = RecentHistory(training.seeds, config.constraint, dead_zone)
    count, goes_on = 1, True
    while trained.update < training.updates and goes_on and not interrupted.is_set():
        count = min(count, checkpoint.next_kept(training, trained.update) - trained.update)
        began = time.monotonic()
        try:
            rows = trained.advance(count)
        except CanaryError as error:
            trained.save()
            after = "Nothing was trained yet."
            if trained.update:
                resume = f"canary train --resume {trained.run}"
                after = f"The run is saved as it was after update {trained.update}: {resume}"
            raise CanaryError(f"{error} {after}") from error
        seconds = time.monotonic() - began
        history.add(*rows)
        steps = training.batch * len(training.seeds)
        display.update(history.status(), trained.update * steps, count * steps / seconds)
        count = max(1, min(most, round(count * CHUNK_SECONDS / seconds)))
        try:
            goes_on = see(*rows)
        except BaseException:  # raised by the callback
            trained.save()
            raise
        if trained.is_due:
            trained.save()
    trained.save()
    if trained.update < training.updates:
        return "interrupted" if goes_on else "stopped"
    checkpoint.prune(trained.run)  # a kill may have prevented the last pruning
    return "finished"


class _Trained:
    """A run that this process trains: its states, its tables, and the number of saved updates."""

    def __init__(self, run: Path, config: RunConfig):
        manifest, this = stored_manifest(run), code_fingerprint()
        codes = manifest["code"]
        codes = codes if codes[-1:] == [this] else [*codes, this]
        update_manifest(run, status="running", code=codes)
        self.run, self.config = run, config
        self.groups = seeds.SeedGroups(with_initial_std(config, manifest["initial_std"]))
        self.update = self._saved = 0  # updates done, and updates saved
        self._saved_at, self._seconds = time.monotonic(), manifest.get("train_seconds", 0.0)
        self._rows: dict[Kind, list[pl.DataFrame]] = {}

    def restore(self) -> list[str]:
        """Load the newest intact states, with the present plan. Returns notes about losses."""
        training = self.config.training
        read = partial(checkpoint.load, like=self.groups.structure())
        states, notes = checkpoint.newest(self.run, read)
        self.update = self._saved = int(states.terms.iteration[0])
        planned = np.full_like(states.terms.updates, training.updates)
        if lost := self.groups.restore(eqx.tree_at(lambda s: s.terms.updates, states, planned)):
            notes.append(
                f"{lost} of {len(training.seeds) * training.environments} episodes of "
                f"{self.config.environment_name} could not be restored: the same seed and actions "
                "led to other observations. New ones start, so the numbers of this run differ from "
                "those of an uninterrupted run."
            )
        # A kill may have left the manifest behind the last checkpoint
        update_manifest(self.run, steps=self.update * training.batch)
        return notes

    def tables(self) -> Rows:
        """Metrics and episodes of the updates done."""
        metrics, episodes = (read_table(self.run, kind) for kind in COLUMNS)
        # An empty table does not have the number of costs
        self._rows["metrics"] = [metrics] if len(metrics) else []
        self._rows["episodes"] = [episodes] if len(episodes) else []
        return metrics, episodes

    def advance(self, count: int) -> Rows:
        """Train `count` updates; returns their rows."""
        training, began = self.config.training, time.monotonic()
        metrics, ends = self.groups.advance(count)
        self._seconds += time.monotonic() - began
        rows = metrics_rows(metrics, training.seeds, self.update, training.batch)
        episodes = episode_rows(ends, training.seeds, self.update)
        self._rows["metrics"].append(rows)
        self._rows["episodes"].append(episodes)
        self.update += count
        return rows, episodes

    @property
    def is_due(self) -> bool:
        """Whether it is time for a checkpoint."""
        training, age = self.config.training, time.monotonic() - self._saved_at
        return checkpoint.is_kept(training, self.update) or age >= training.checkpoint_seconds

    def save(self) -> None:
        """Write the tables, then the states, then the number of steps in the manifest."""
        if self.update == self._saved:
            return
        run, training = self.run, self.config.training
        for kind, tables in self._rows.items():
            tables[:] = [pl.concat(tables, how="diagonal_relaxed")]
            write_table(run, kind, tables[0])
        kind = checkpoint.KEPT if checkpoint.is_kept(training, self.update) else "checkpoint"
        place = checkpoint.checkpoint_path(run, self.update, kind)
        checkpoint.save(place, self.groups.stacked())
        steps, seconds = self.update * training.batch, round(self._seconds, 2)
        update_manifest(run, steps=steps, train_seconds=seconds)
        checkpoint.prune(run)
        self._saved, self._saved_at = self.update, time.monotonic()


@contextmanager
def _interruptible(display: TrainingProgress) -> Iterator[threading.Event]:
    """Ctrl-C and SIGTERM stop after the current chunk; a second one stops at once."""
    asked = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield asked
        return

    def ask(number: int, frame: Any) -> None:
        if asked.is_set():
            raise KeyboardInterrupt
        asked.set()
        display.busy("stopping; Ctrl-C again stops at once")

    previous = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield asked
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
