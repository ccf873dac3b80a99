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
from pathlib import Path
from typing import Any

import jax

from canary.algorithms import ALGORITHMS
from canary.algorithms.base import Task
from canary.environments.protocol import Environment
from canary.errors import CanaryError
from canary.experiments import checkpoint, progress, storage
from canary.experiments.config import RunConfig, config_from_dict, config_to_dict
from canary.experiments.devices import prepare_devices
from canary.experiments.manifest import read_manifest
from canary.experiments.records import RecentHistory, episodes_frame, metrics_frame
from canary.experiments.seeds import SeedGroups
from canary.rollout import Augmentation
from canary.training import Trainer

CHUNK_SECONDS = 2.0  # how long one call of the program should take: the display and Ctrl-C wait for it


def make_trainer(config: RunConfig) -> Trainer:
    environment, training = config.environment, config.training
    on_cpu = jax.default_backend() == "cpu"
    task = Task(
        constraint=config.constraint,
        input_size=environment.observation_size + Augmentation.SIZE,
        action_space=environment.action_space,
        updates=training.updates,
        # Merging branches on the data, which a vectorised group of seeds would have to compute both ways.
        merge_capacity=training.merge_capacity if on_cpu and training.seeds_per_device <= 1 else 0,
    )
    return Trainer(
        environment=environment,
        algorithm=ALGORITHMS[config.algorithm_name].make(config.algorithm, task),
        augmentation=Augmentation(config.constraint.limit, config.algorithm.estimation.cost_discount),
        environments=training.environments,
        rollout_length=training.rollout_length,
        stagger=training.stagger,
    )


def start_run(config: RunConfig, out: Path, *, quiet: bool = False) -> Path:
    """Train from the beginning in a new run directory below `out`; returns the directory."""
    prepare_devices()
    groups = _groups(config)
    groups.structure()  # what cannot be built must fail before anything is written
    training = config.training
    device = jax.devices()[0]
    is_new_place = not out.exists()
    headline = storage.Headline(
        config.environment_name, config.algorithm_name, len(training.seeds), training.updates * training.batch
    )
    run = storage.create(
        out,
        headline,
        config_to_dict(config),
        device=f"{device.platform}: {device.device_kind}",
        command=sys.argv,
    )
    try:
        _train(config, groups, run, resume=False, quiet=quiet)
    except BaseException:
        if not checkpoint.checkpoints(run / "checkpoints"):  # nothing to go on from: leave nothing behind
            shutil.rmtree(run, ignore_errors=True)
            with contextlib.suppress(OSError):
                if is_new_place:
                    out.rmdir()
        raise
    return run


def resume_run(run: Path, *, environment: Environment | None = None, quiet: bool = False) -> Path:
    """Go on where the newest intact checkpoint left off, as if the run had never stopped."""
    prepare_devices()
    config = config_from_dict(storage.read_json(run / "config.json"), environment)
    status = read_manifest(run)["status"]
    if status == "running":
        raise CanaryError(
            f"{run} is being trained by another process right now; wait for it or stop it first."
        )
    if status != "finished":
        groups = _groups(config)
        storage.update_manifest(run, status="running", process=storage.process_identity())
        _train(config, groups, run, resume=True, quiet=quiet)
    return run


def load_states(config: RunConfig, run: Path) -> tuple[Any, int, list[str]]:
    """Stacked states and iteration of the newest intact checkpoint, and a sentence for each that was skipped."""
    prepare_devices()
    groups = _groups(config)
    try:
        return _newest(run, groups)
    finally:
        groups.close()


def _newest(run: Path, groups: SeedGroups) -> tuple[Any, int, list[str]]:
    tree, metadata, used, skipped = checkpoint.newest_intact(run / "checkpoints", groups.structure())
    notes = [f"{reason} Using {used.name} instead." for _, reason in skipped]
    return tree, int(metadata["iteration"]), notes


def _groups(config: RunConfig) -> SeedGroups:
    training = config.training
    size = min(training.chunk, training.updates)  # the records of a whole chunk are kept in memory
    return SeedGroups(
        make_trainer(config), training.seeds, training.base_seed, training.seeds_per_device, size
    )


def _train(config: RunConfig, groups: SeedGroups, run: Path, *, resume: bool, quiet: bool) -> None:
    started, iteration = time.monotonic(), 0
    before = read_manifest(run).get("wall_seconds", 0.0)
    task = progress.Task(
        config.environment_name, config.algorithm_name, config.constraint.limit, config.constraint.epsilon,
        config.training.updates * config.training.batch * len(config.training.seeds),
    )  # fmt: skip
    status = "failed"
    try:
        with (
            progress.TrainingProgress(task, quiet=quiet) as display,
            _interruptible(lambda: display.busy("stopping; Ctrl-C again stops at once")) as interrupted,
        ):
            if resume and checkpoint.checkpoints(run / "checkpoints"):
                states, iteration, notes = _newest(run, groups)
                for note in notes:
                    display.message(note, warning=True)
                groups.restore(states)
                display.message(f"Resuming {run} after update {iteration} of {config.training.updates}.")
            else:
                display.busy("preparing the seeds")
                groups.start()
            storage.discard_after(run, iteration)
            display.busy("compiling")
            began = time.monotonic()
            groups.compile()
            storage.update_manifest(run, compile_seconds=round(time.monotonic() - began, 2))
            status = _loop(config, run, groups, iteration, display, interrupted)
    except KeyboardInterrupt:
        status = "interrupted"
    finally:
        groups.close()
        finished = datetime.now().astimezone().isoformat(timespec="seconds")
        seconds = round(before + time.monotonic() - started, 2)
        storage.update_manifest(run, status=status, finished=finished, wall_seconds=seconds)


def _loop(
    config: RunConfig,
    run: Path,
    groups: SeedGroups,
    first: int,
    display: progress.TrainingProgress,
    interrupted: threading.Event,
) -> str:
    """Advance until the end or an interruption; returns the status of the run."""
    training = config.training
    history = RecentHistory(training.seeds, config.constraint.limit, config.constraint.epsilon)
    pending = PendingRows(run, first)
    iteration, count = first, 1
    while iteration < training.updates and not interrupted.is_set():
        began = time.monotonic()
        count = min(count, training.updates - iteration)
        metrics, ends = groups.advance(count)
        seconds = time.monotonic() - began
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
    storage.compact(run)
    return "finished"


class PendingRows:
    """Rows since the last checkpoint, written together with the next one."""

    def __init__(self, run: Path, iteration: int):
        self._run, self._first = run, iteration
        self._metrics: list[Any] = []
        self._episodes: list[Any] = []
        self._saved = time.monotonic()
        self._train_seconds = float(read_manifest(run).get("train_seconds", 0.0)) if iteration else 0.0

    def age(self) -> float:
        return time.monotonic() - self._saved

    def add(self, metrics: Any, episodes: Any, seconds: float) -> None:
        self._metrics.append(metrics)
        self._episodes.append(episodes)
        self._train_seconds += seconds

    def commit(self, groups: SeedGroups, iteration: int, steps: int) -> None:
        """Tables first, then the state that continues after them."""
        import polars as pl

        if not self._metrics:
            return
        storage.append_part(self._run, "metrics", pl.concat(self._metrics), self._first, iteration)
        storage.append_part(self._run, "episodes", pl.concat(self._episodes), self._first, iteration)
        folder = self._run / "checkpoints"
        checkpoint.save(
            checkpoint.checkpoint_path(folder, iteration), groups.stacked(), metadata={"iteration": iteration}
        )
        storage.update_manifest(self._run, steps=steps, train_seconds=round(self._train_seconds, 2))
        checkpoint.prune(folder)
        self._metrics, self._episodes, self._first, self._saved = [], [], iteration, time.monotonic()


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
