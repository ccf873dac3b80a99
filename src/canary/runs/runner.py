"""Train: build the trainer, advance all seeds chunk by chunk, and keep the run directory true at every moment.

At a checkpoint the tables of the iterations since the last one are written first and the state after them, so whatever
kills the process, the newest intact checkpoint and the rows before it are a run that merely stopped there.
"""

import contextlib
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from canary.algorithms import ALGORITHMS
from canary.algorithms.base import Task
from canary.config.config import RunConfig, config_to_dict
from canary.config.sources import source_from_dict
from canary.environments.protocol import Environment, close
from canary.errors import CanaryError
from canary.rollout import CostAccount
from canary.runs import checkpoint, directory, files, lock, tables
from canary.runs.binding import check_binding
from canary.runs.code import with_this_code
from canary.runs.devices import prepare_devices
from canary.runs.faults import fault_sentence
from canary.runs.manifest import is_trained_by_older_version, read_manifest, stored_manifest
from canary.runs.opening import describe_environment, open_config
from canary.runs.pending import PendingRows
from canary.runs.records import RecentHistory, episodes_frame, metrics_frame
from canary.runs.revival import revive
from canary.runs.seeds import SeedGroups
from canary.runs.trust import remember
from canary.terminal import progress
from canary.training import FAULT, Trainer
from canary.types import Terms

CHUNK_SECONDS = 2.0  # how long one call of the program should take: the display and Ctrl-C wait for it


def make_trainer(config: RunConfig) -> Trainer:
    environment, training = config.environment, config.training
    on_cpu = jax.default_backend() == "cpu"
    task = Task(
        input_size=environment.observation_size + CostAccount.SIZE,
        action_space=environment.action_space,
        constraint=config.constraint.kind,
        # Merging branches on the data, which a vectorised group of seeds would have to compute both ways.
        merge_capacity=training.merge_capacity if on_cpu and training.seeds_per_device <= 1 else 0,
    )
    return Trainer(
        environment=environment,
        algorithm=ALGORITHMS[config.algorithm_name].make(config.algorithm, task),
        cost_discount=config.algorithm.estimation.cost_discount,
        environments=training.environments,
        rollout_length=training.rollout_length,
        stagger=training.stagger,
    )


def make_terms(config: RunConfig) -> Terms:
    """What the run is asked for, at its start."""
    limit, share = jnp.float32(config.constraint.limit), jnp.float32(config.constraint.share)
    return Terms(limit, share, jnp.int32(config.training.updates), jnp.int32(0))


def start_run(config: RunConfig, out: Path, *, quiet: bool = False) -> Path:
    """Train from the beginning in a new run directory below `out`; returns the directory."""
    files.check_name(out)
    prepare_devices()
    described = describe_environment(config.environment)
    groups = _groups(config)
    groups.structure()  # what cannot be built must fail before anything is written
    training = config.training
    device = jax.devices()[0]
    is_new_place = not out.exists()
    headline = directory.Headline(
        config.environment_name, config.algorithm_name, len(training.seeds), training.updates * training.batch
    )
    run = directory.create(
        out,
        headline,
        config_to_dict(config) | {"environment": described},
        device=f"{device.platform}: {device.device_kind}",
        command=sys.argv,
    )
    if "source" in described:  # it was just imported and called
        remember(run, source_from_dict(described["source"]))
    try:
        with lock.acquire(run) as held:
            _train(config, groups, run, held, resume=False, quiet=quiet)
    except BaseException:
        if not checkpoint.checkpoints(run / "checkpoints"):  # nothing to go on from: leave nothing behind
            shutil.rmtree(run, ignore_errors=True)
            with contextlib.suppress(OSError):
                if is_new_place:
                    out.rmdir()
        raise
    return run


def resume_run(
    run: Path,
    *,
    environment: Environment | None = None,
    accept_change: bool = False,
    force: bool = False,
    quiet: bool = False,
) -> Path:
    """Go on where the newest intact checkpoint left off, as if the run had never stopped.

    `force` takes the run over from a process on another machine that holds it.
    """
    prepare_devices()
    config = open_config(run, environment, accept_change=accept_change)
    with lock.acquire(run, force=force) as held:
        clean(run)
        if is_trained_by_older_version(stored_manifest(run)):
            raise CanaryError(
                f"{run} is being trained by a process of an older version; wait for it or stop it first."
            )
        if stored_manifest(run)["status"] != "finished":
            tables.adopt(run, directory.read_config(run))
            groups = _groups(config)
            code = with_this_code(stored_manifest(run))
            directory.update_manifest(run, status="running", process=directory.process_identity(), **code)
            _train(config, groups, run, held, resume=True, quiet=quiet)
    return run


def clean(run: Path) -> None:
    """Remove what killed processes left behind in a run."""
    for folder in (run, run / "checkpoints", run / "exports", *(run / kind for kind in directory.COLUMNS)):
        files.remove_orphans(folder)


def load_states(config: RunConfig, run: Path) -> tuple[Any, int, list[str]]:
    """Stacked states and iteration of the newest intact checkpoint, and a sentence for each that was skipped."""
    prepare_devices()
    groups = _groups(config)
    try:
        return _newest(config, run, groups)
    finally:
        groups.close()


def _newest(config: RunConfig, run: Path, groups: SeedGroups) -> tuple[Any, int, list[str]]:
    tree, metadata, used, skipped = checkpoint.newest_intact(
        run / "checkpoints", groups.structure(), partial(check_binding, config)
    )
    notes = [f"{reason} Using {used.name} instead." for _, reason in skipped]
    return tree, int(metadata["iteration"]), notes


def _groups(config: RunConfig) -> SeedGroups:
    training = config.training
    return SeedGroups(
        make_trainer(config), make_terms(config), training.seeds, training.seeds_per_device, training.chunk
    )


def _train(
    config: RunConfig, groups: SeedGroups, run: Path, held: lock.RunLock, *, resume: bool, quiet: bool
) -> None:
    started, iteration = time.monotonic(), 0
    before = read_manifest(run).get("wall_seconds", 0.0)
    task = progress.RunHeading(
        config.environment_name, config.algorithm_name, config.constraint,
        config.training.updates * config.training.batch * len(config.training.seeds),
    )  # fmt: skip
    status = "failed"
    try:
        with (
            progress.TrainingProgress(task, quiet=quiet) as display,
            _interruptible(lambda: display.busy("stopping; Ctrl-C again stops at once")) as interrupted,
        ):
            if resume and checkpoint.checkpoints(run / "checkpoints"):
                states, iteration, notes = _newest(config, run, groups)
                states, lost = revive(groups.trainer, states)
                for note in (*notes, *lost):
                    display.message(note, warning=True)
                groups.restore(states)
                display.message(f"Resuming {run} after update {iteration} of {config.training.updates}.")
            else:
                display.busy("preparing the seeds")
                groups.start()
            directory.discard_after(run, iteration)
            display.busy("compiling")
            began = time.monotonic()
            groups.compile()
            directory.update_manifest(run, compile_seconds=round(time.monotonic() - began, 2))
            status = _loop(config, run, groups, iteration, display, interrupted, held)
    except KeyboardInterrupt:
        status = "interrupted"
    finally:
        groups.close()
        close(config.environment)
        finished = datetime.now().astimezone().isoformat(timespec="seconds")
        seconds = round(before + time.monotonic() - started, 2)
        held.check()
        directory.update_manifest(run, status=status, finished=finished, wall_seconds=seconds)


def _loop(
    config: RunConfig,
    run: Path,
    groups: SeedGroups,
    first: int,
    display: progress.TrainingProgress,
    interrupted: threading.Event,
    held: lock.RunLock,
) -> str:
    """Advance until the end or an interruption; returns the status of the run."""
    training = config.training
    history = RecentHistory(training.seeds, config.constraint)
    pending = PendingRows(run, first, config_to_dict(config), held)
    iteration, count = first, 1
    while iteration < training.updates and not interrupted.is_set():
        began = time.monotonic()
        count = min(count, training.updates - iteration)
        metrics, ends = groups.advance(count)
        seconds = time.monotonic() - began
        if (fault := fault_sentence(metrics.pop(FAULT), config, iteration, run)) is not None:
            groups.rewind()
            pending.commit(groups, iteration, iteration * training.batch)
            raise CanaryError(fault)
        episodes = episodes_frame(ends, training.seeds, iteration)
        rows = metrics_frame(metrics, training.seeds, iteration, training.batch)
        pending.add(rows, episodes, seconds)
        history.add(metrics, rows, episodes)
        iteration += count
        steps = count * training.batch * len(training.seeds)
        display.update(history.status(), iteration * training.batch * len(training.seeds), steps / seconds)
        count = max(1, min(training.chunk, round(count * CHUNK_SECONDS / seconds)))
        if pending.age() >= training.checkpoint_seconds:
            pending.commit(groups, iteration, iteration * training.batch)
            display.notice(f"checkpoint saved after update {iteration}")
    pending.commit(groups, iteration, iteration * training.batch)
    if iteration < training.updates:
        return "interrupted"
    directory.compact(run)
    return "finished"


@contextmanager
def _interruptible(announce: Callable[[], None]):
    """Ctrl-C asks for a stop after the current chunk; a second one stops at once (the last checkpoint stays good)."""
    asked = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield asked
        return

    def ask(number: int, frame: Any) -> None:
        if asked.is_set():
            raise KeyboardInterrupt
        asked.set()
        announce()

    previous = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield asked
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
