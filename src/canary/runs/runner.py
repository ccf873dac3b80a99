"""Train: make a run, advance all its seeds chunk by chunk, and keep it consistent at every moment.

A run begins as a directory with a manifest and the states before the first update. From there on to
train and to resume are the same: continue from the newest intact state.

Data are written before the record that says they exist: tables, states, and last the number of steps
in the manifest. A kill between any two writes leaves a run that stopped at its newest checkpoint.
"""

import os
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
import numpy as np
import polars as pl

from canary.config.run_config import RunConfig, checked_config, config_to_dict
from canary.environments.protocol import close
from canary.errors import CanaryError
from canary.exploration import initial_std, with_initial_std
from canary.runs import checkpoint, directory, seeds
from canary.runs.devices import device_name, prepare_devices
from canary.runs.directory import code_fingerprint, hold, stored_manifest, update_manifest
from canary.runs.environment import agree, describe_environment
from canary.runs.files import remove_unfinished
from canary.runs.history import RecentHistory
from canary.runs.tables import (
    COLUMNS,
    Kind,
    episode_rows,
    metrics_rows,
    read_table,
    write_table,
)
from canary.runs.warm_start import Start
from canary.terminal.formatting import title
from canary.terminal.progress import TrainingProgress
from canary.watching import Callback, check_logs, watching

CHUNK_SECONDS = 2.0  # of one call of the program: the display and Ctrl-C wait for it


def new_run(
    config: RunConfig,
    out: Path,
    *,
    name: str | None = None,
    tags: Sequence[str] = (),
    log: Sequence[str] = (),
    start: Start | None = None,
) -> Path:
    """Make a run directory below `out` with untrained seeds, or with what another run has learnt
    (`start`); returns it. A mistake shows before anything is written."""
    tags, log = tuple(dict.fromkeys(tags)), check_logs(log)
    directory.check_labels(out, name, tags)
    training = config.training
    prepare_devices()
    _check_memory(config)
    described = describe_environment(config.environment)
    chosen = initial_std(config)  # of a warm start too: the entropy bonus is in proportion to it
    groups = seeds.SeedGroups(with_initial_std(config, chosen))
    groups.start()
    states, record = groups.stacked(), None
    groups.close()
    if start is not None:
        states, record = start.begin(states, training.seeds)
    run = directory.create(
        out,
        config_to_dict(config) | {"environment": described},
        training.updates * training.batch,
        device=device_name(),
        name=name,
        tags=tags,
        log=log,
        start=record,
        initial_std=chosen,
        fill=lambda run: checkpoint.save(checkpoint.checkpoint_path(run, 0), states),
    )
    agree(run, trust=True)  # it was just imported and called
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
    """Train a run from its newest intact state, as if it had never stopped; returns the
    configuration as it is planned now. `total_steps` trains longer than planned.

    The manifest states whether training ended, was interrupted or failed. A run that fails before
    anything was trained is removed.
    """
    logs = check_logs(log)
    prepare_devices()
    with hold(run):
        for folder in (run, run / checkpoint.FOLDER):
            remove_unfinished(folder)
        manifest, note = stored_manifest(run), None
        if total_steps is not None and total_steps != config.training.total_steps:
            config, note = _extended(run, config, total_steps)
        elif manifest["status"] == "finished":
            return config
        codes, this = manifest["code"], code_fingerprint()
        update_manifest(
            run,
            status="running",
            process=directory.process_identity(),
            code=codes if codes[-1:] == [this] else [*codes, this],
        )
        training, constraint = config.training, config.constraint
        steps = training.updates * training.batch * len(training.seeds)
        what = f"{config.algorithm_name} on {config.environment_name}"
        groups = seeds.SeedGroups(with_initial_std(config, manifest["initial_std"]))
        began, status = time.monotonic(), "failed"
        try:
            heading = title(what, constraint.text)
            with (
                TrainingProgress(heading, constraint, steps, quiet=quiet) as display,
                _interruptible(display) as interrupted,
            ):
                display.busy("preparing the seeds")
                store = _Store(run, config, groups)
                for text in (note, *store.restore()):
                    if text:
                        display.message(text, warning=True)
                if store.update:
                    done = f"update {store.update} of {training.updates}"
                    display.message(f"Resuming {run} after {done}.")
                about = config_to_dict(config) | {"tags": manifest["tags"]}
                watched = run, about, constraint, training.updates, store.tables()
                with watching(*watched, callback, logs or manifest["log"]) as see:
                    display.busy("compiling")
                    groups.compile()
                    # With a callback updates run one at a time, so that a stop takes effect at once
                    most = training.chunk if callback is None else 1
                    status = _advance(store, groups, most, display, interrupted, see)
        except KeyboardInterrupt:
            status = "interrupted"
        finally:
            groups.close()
            close(config.environment)
            if status == "failed" and not checkpoint.stored_updates(run):
                directory.discard(run)
            else:
                seconds = manifest.get("wall_seconds", 0.0) + time.monotonic() - began
                now = datetime.now().astimezone().isoformat(timespec="seconds")
                update_manifest(run, status=status, finished=now, wall_seconds=round(seconds, 2))
    return config


def _extended(run: Path, config: RunConfig, total_steps: int) -> tuple[RunConfig, str]:
    """The configuration with a longer plan, also in the manifest; and a sentence about schedules."""
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
    done = manifest["steps"] // batch
    return longer, (
        f"The plan is now {total_steps:,} steps instead of {training.total_steps:,}. Schedules such "
        "as learning rates run over the whole plan, so they go back from "
        f"{done / training.updates:.0%} to {done / updates:.0%}: the result differs from a run "
        f"planned for {total_steps:,} steps."
    )


def _advance(
    store: "_Store",
    groups: seeds.SeedGroups,
    most: int,
    display: TrainingProgress,
    interrupted: threading.Event,
    see: Callable[[pl.DataFrame, pl.DataFrame], bool],
) -> str:
    """Train by chunks of at most `most` updates until the end, an interruption or a callback's stop;
    returns the run's status."""
    config, training = store.config, store.config.training
    dead_zone = getattr(config.algorithm, "dead_zone", None)
    history = RecentHistory(training.seeds, config.constraint, dead_zone)
    update, count, goes_on = store.update, 1, True
    while update < training.updates and goes_on and not interrupted.is_set():
        began = time.monotonic()
        count = min(count, checkpoint.next_kept(training, update) - update)
        try:
            metrics, ends = groups.advance(count)
        except CanaryError as error:
            store.save(update)
            resume = f"canary train --resume {store.run}"
            after = f"The run is saved as it was after update {update}: {resume}"
            text = f"{error} {after if update else 'Nothing was trained yet.'}"
            raise CanaryError(text) from error
        seconds = time.monotonic() - began
        rows = metrics_rows(metrics, training.seeds, update, training.batch)
        episodes = episode_rows(ends, training.seeds, update)
        store.add(rows, episodes, seconds)
        history.add(rows, episodes)
        update += count
        steps = training.batch * len(training.seeds)
        display.update(history.status(), update * steps, count * steps / seconds)
        count = max(1, min(most, round(count * CHUNK_SECONDS / seconds)))
        try:
            goes_on = see(rows, episodes)
        except BaseException:  # of the callback
            store.save(update)
            raise
        if store.is_due(update):
            store.save(update)
    store.save(update)
    if update < training.updates:
        return "interrupted" if goes_on else "stopped"
    checkpoint.prune(store.run)  # a kill may have come before the last pruning
    return "finished"


class _Store:
    """The tables and states of a run that this process holds."""

    def __init__(self, run: Path, config: RunConfig, groups: seeds.SeedGroups):
        self.run, self.config, self._groups = run, config, groups
        self.update, self._saved_at = 0, time.monotonic()  # the newest checkpoint
        self._seconds = float(stored_manifest(run).get("train_seconds", 0.0))
        self._rows: dict[Kind, list[pl.DataFrame]] = {}

    def restore(self) -> list[str]:
        """Take up the newest intact states under the plan as it is now; returns what was lost."""
        training, groups = self.config.training, self._groups
        read = partial(checkpoint.load, like=groups.structure())
        states, notes = checkpoint.newest(self.run, read)
        self.update = int(states.terms.iteration[0])
        planned = np.full_like(states.terms.updates, training.updates)
        if lost := groups.restore(eqx.tree_at(lambda s: s.terms.updates, states, planned)):
            notes.append(
                f"{lost} of {len(training.seeds) * training.environments} episodes of "
                f"{self.config.environment_name} could not be restored: the same seed and actions "
                "led to other observations. New ones start, so the numbers of this run differ from "
                "those of one that never stopped."
            )
        # A kill may have come between the last checkpoint and its steps in the manifest
        update_manifest(self.run, steps=self.update * training.batch)
        return notes

    def tables(self) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Metrics and episodes of the updates done."""
        metrics, episodes = (read_table(self.run, kind) for kind in COLUMNS)
        # An empty table does not know how many costs there are
        self._rows["metrics"] = [metrics] if len(metrics) else []
        self._rows["episodes"] = [episodes] if len(episodes) else []
        return metrics, episodes

    def add(self, rows: pl.DataFrame, episodes: pl.DataFrame, seconds: float) -> None:
        """What a chunk of updates gave."""
        self._rows["metrics"].append(rows)
        self._rows["episodes"].append(episodes)
        self._seconds += seconds

    def is_due(self, update: int) -> bool:
        training, age = self.config.training, time.monotonic() - self._saved_at
        return checkpoint.is_kept(training, update) or age >= training.checkpoint_seconds

    def save(self, update: int) -> None:
        """Tables first, then the states after them, then the steps in the manifest."""
        if update == self.update:
            return
        run, training = self.run, self.config.training
        for kind, tables in self._rows.items():
            tables[:] = [pl.concat(tables, how="diagonal_relaxed")]
            write_table(run, kind, tables[0])
        name = checkpoint.KEPT if checkpoint.is_kept(training, update) else "checkpoint"
        checkpoint.save(checkpoint.checkpoint_path(run, update, name), self._groups.stacked())
        steps, seconds = update * training.batch, round(self._seconds, 2)
        update_manifest(run, steps=steps, train_seconds=seconds)
        checkpoint.prune(run)
        self.update, self._saved_at = update, time.monotonic()


def _check_memory(config: RunConfig) -> None:
    """Raise a sentence if a batch does not fit into memory."""
    training = config.training
    # A step of a rollout has two inputs and about ten numbers beside them.
    least = 4 * training.batch * (2 * config.environment.observation_size + 10)
    if least > os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"):
        raise CanaryError(
            f"A batch of {training.environments:,} environments x {training.rollout_length:,} steps "
            "needs more memory than there is; make training.environments or "
            "training.rollout_length smaller."
        )


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
