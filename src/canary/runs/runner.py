"""Train: advance all seeds chunk by chunk, and keep the run directory consistent at every moment.

Data are written before the record that says they exist: tables, a state that is kept, the newest
state, and last the number of steps in the manifest. A kill between any two writes leaves a run that
stopped at its newest checkpoint.
"""

import contextlib
import os
import shutil
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import polars as pl

from canary.config.run_config import RunConfig, checked, config_to_dict
from canary.environments.protocol import Environment, close, explain_failures
from canary.errors import CanaryError
from canary.exploration import with_initial_std
from canary.runs import checkpoint, directory, files, tables
from canary.runs.checkpoint import KEPT, NEWEST, is_kept, next_kept
from canary.runs.devices import device_name, prepare_devices
from canary.runs.environment import agree, describe_environment, is_ours, open_config
from canary.runs.manifest import code_fingerprint, hold, stored_manifest, update_manifest
from canary.runs.policies import FrozenPolicies, reference_episodes
from canary.runs.records import RecentHistory, episodes_frame, find_fault, metrics_frame
from canary.runs.seeds import SeedGroups, make_groups
from canary.runs.warm_start import Start
from canary.terminal.formatting import title
from canary.terminal.progress import TrainingProgress
from canary.training import FAULT
from canary.watching import Watcher

CHUNK_SECONDS = 2.0  # of one call of the program: the display and Ctrl-C wait for it


def start_run(
    config: RunConfig,
    out: Path,
    *,
    quiet: bool = False,
    name: str | None = None,
    tags: Sequence[str] = (),
    watcher: Watcher | None = None,
    start: Start | None = None,
) -> Path:
    """Train in a new run directory below `out`, from the beginning or from what another run has
    learnt (`start`); returns the directory."""
    tags, watcher = tuple(dict.fromkeys(tags)), watcher or Watcher()
    directory.check_labels(out, name, tags)
    prepare_devices()
    described = describe_environment(config.environment)
    training = config.training
    with _enough_memory(config):
        groups = make_groups(config if start else with_initial_std(config))
        structure = groups.structure()  # mistakes must show before anything is written
    start = start and start.fitted(structure, training.seeds)
    run = directory.create(
        out,
        config_to_dict(config) | {"environment": described},
        training.updates * training.batch,
        device=device_name(),
        name=name,
        tags=tags,
        log=watcher.log,
        start=start.record if start else None,
    )
    try:
        agree(run, trust=True)  # it was just imported and called
        with hold(run):
            _Training(config, groups, run, watcher, start).run(quiet)
    except BaseException:
        if not checkpoint.checkpoints(run / NEWEST):  # it could not be resumed
            shutil.rmtree(run, ignore_errors=True)
            with contextlib.suppress(OSError):  # other runs are in it
                out.rmdir()
        raise
    return run


def resume_run(
    run: Path,
    *,
    environment: Environment | None = None,
    quiet: bool = False,
    total_steps: int | None = None,
    watcher: Watcher | None = None,
) -> Path:
    """Continue from the newest intact checkpoint, as if the run had never stopped; `total_steps`
    trains longer than planned."""
    prepare_devices()
    config = open_config(run, environment)
    with hold(run):
        for folder in (run, run / NEWEST, run / KEPT):
            files.remove_unfinished(folder)
        manifest, note = stored_manifest(run), None
        if total_steps is not None and total_steps != config.training.total_steps:
            config, note = _extended(run, config, total_steps)
        elif manifest["status"] == "finished":
            return run
        watcher = watcher or Watcher()
        if not watcher.log:
            watcher.log_to(manifest["log"])
        codes, this = manifest["code"], code_fingerprint()
        update_manifest(
            run,
            status="running",
            process=directory.process_identity(),
            code=codes if codes[-1:] == [this] else [*codes, this],
        )
        has_begun = bool(checkpoint.checkpoints(run / NEWEST))
        if manifest.get("start") and not has_begun:
            raise CanaryError(
                f"{run} was killed before it stored what it begins with; start it anew."
            )
        groups = make_groups(config if has_begun else with_initial_std(config))
        _Training(config, groups, run, watcher).run(quiet, note)
    return run


def _extended(run: Path, config: RunConfig, total_steps: int) -> tuple[RunConfig, str]:
    """The configuration with a longer plan, also in the manifest; and a sentence about schedules."""
    training, manifest = config.training, stored_manifest(run)
    longer = checked(replace(config, training=replace(training, total_steps=total_steps)))
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
    done = manifest["steps"]
    before, after = (done / (count * batch) for count in (training.updates, updates))
    return longer, (
        f"The plan is now {total_steps:,} steps instead of {training.total_steps:,}. Schedules such "
        f"as learning rates run over the whole plan, so they go back from {before:.0%} to "
        f"{after:.0%}: the result differs from a run planned for {total_steps:,} steps."
    )


class _Training:
    """Trains a run that this process holds."""

    def __init__(
        self,
        config: RunConfig,
        groups: SeedGroups,
        run: Path,
        watcher: Watcher,
        start: Start | None = None,
    ):
        self._config, self._groups, self._run, self._watcher = config, groups, run, watcher
        self._start = start  # what a new run begins with; None: untrained networks
        self._frames: dict[tables.Kind, list[pl.DataFrame]] = {}
        self._stored, self._stored_at = 0, time.monotonic()  # the newest checkpoint
        self._seconds = float(stored_manifest(run).get("train_seconds", 0.0))

    def run(self, quiet: bool, note: str | None = None) -> None:
        """Train to the end, an interruption or a fault, and state which it was in the manifest."""
        config, groups, run = self._config, self._groups, self._run
        began, status = time.monotonic(), "failed"
        steps = config.training.updates * config.training.batch * len(config.training.seeds)
        what = f"{config.algorithm_name} on {config.environment_name}"
        heading = title(what, config.constraint.text)
        try:
            with (
                TrainingProgress(heading, config.constraint, steps, quiet=quiet) as display,
                _interruptible(display) as interrupted,
                _enough_memory(config),
            ):
                display.busy("preparing the seeds")
                for text in (note, *self._prepare()):
                    if text:
                        display.message(text, warning=True)
                if self._stored:
                    done = f"update {self._stored} of {config.training.updates}"
                    display.message(f"Resuming {run} after {done}.")
                display.busy("compiling")
                groups.compile()
                status = self._loop(display, interrupted)
                if status != "interrupted" and not is_ours(config.environment):
                    display.busy("playing the last policies")
                    self._store_reference_episodes()
        except KeyboardInterrupt:
            status = "interrupted"
        finally:
            groups.close()
            close(config.environment)
            self._watcher.close()
            seconds = stored_manifest(run).get("wall_seconds", 0.0) + time.monotonic() - began
            now = datetime.now().astimezone().isoformat(timespec="seconds")
            update_manifest(run, status=status, finished=now, wall_seconds=round(seconds, 2))

    def _prepare(self) -> list[str]:
        """Start the seeds, or restore the newest intact state under the plan as it is now; open the
        logs. Returns what was lost."""
        config, run, groups, notes = self._config, self._run, self._groups, []
        updates = config.training.updates
        if checkpoint.checkpoints(run / NEWEST):
            states, self._stored, notes = checkpoint.newest_states(run, groups.structure())
            planned = jnp.full_like(states.terms.updates, updates)
            groups.restore(eqx.tree_at(lambda s: s.terms.updates, states, planned))
            notes = [*notes, *groups.revive()]
        else:
            groups.start()
            if self._start:  # stored at once: a resumed run must begin with it too
                groups.restore(self._start.begin(groups.stacked()))
                checkpoint.store(run, config.training, groups.stacked(), 0)
        # A kill may have come between the last checkpoint and its steps in the manifest
        update_manifest(run, steps=self._stored * config.training.batch)
        done = tables.read_table(run, "metrics"), tables.read_table(run, "episodes")
        # An empty table does not know how many costs there are
        rows = ([table] if len(table) else [] for table in done)
        self._frames = dict(zip(tables.COLUMNS, rows, strict=True))
        about = config_to_dict(config) | {"tags": stored_manifest(run)["tags"]}
        self._watcher.open(run, about, config.constraint, updates, done)
        return notes

    def _loop(self, display: TrainingProgress, interrupted: threading.Event) -> str:
        """Advance until the end, an interruption or a watcher's stop; returns the run's status."""
        config, training = self._config, self._config.training
        dead_zone = getattr(config.algorithm, "dead_zone", None)
        history = RecentHistory(training.seeds, config.constraint, dead_zone)
        iteration, count, goes_on = self._stored, 1, True
        # With a callback updates run one at a time, so that a stop takes effect at once
        most = training.chunk if self._watcher.callback is None else 1
        self._stored_at = time.monotonic()
        while iteration < training.updates and goes_on and not interrupted.is_set():
            began = time.monotonic()
            count = min(count, next_kept(training, iteration) - iteration)
            metrics, ends = self._advance(iteration, count)
            seconds = time.monotonic() - began
            episodes = episodes_frame(ends, training.seeds, iteration)
            rows = metrics_frame(metrics, training.seeds, iteration, training.batch)
            self._frames["metrics"].append(rows)
            self._frames["episodes"].append(episodes)
            self._seconds += seconds
            history.add(rows, episodes)
            iteration += count
            steps = training.batch * len(training.seeds)
            display.update(history.status(), iteration * steps, count * steps / seconds)
            count = max(1, min(most, round(count * CHUNK_SECONDS / seconds)))
            try:
                goes_on = self._watcher.see(rows, episodes)
            except BaseException:
                self._save(iteration)
                raise
            age = time.monotonic() - self._stored_at
            if is_kept(training, iteration) or age >= training.checkpoint_seconds:
                self._save(iteration)
        self._save(iteration)
        if iteration < training.updates:
            return "interrupted" if goes_on else "stopped"
        checkpoint.prune(self._run / NEWEST)  # a kill may have come before the last pruning
        return "finished"

    def _advance(self, iteration: int, count: int) -> Any:
        """The records of `count` updates. On a fault, save the state before them and raise."""
        config, groups = self._config, self._groups
        try:
            with explain_failures(config.environment):
                metrics, ends = groups.advance(count)
        except CanaryError as error:  # the states are still those before
            fault = str(error)
        else:
            fault = find_fault(metrics.pop(FAULT), ends, config, iteration) or groups.unsound()
            if fault is None:
                return metrics, ends
            groups.rewind()
        self._save(iteration)
        after = (
            f"The run is saved as it was after update {iteration}: canary train --resume {self._run}"
            if iteration
            else "Nothing was trained yet."
        )
        raise CanaryError(f"{fault} {after}")

    def _save(self, iteration: int) -> None:
        """Tables first, then the states after them, then the steps in the manifest."""
        if iteration == self._stored:
            return
        run, training = self._run, self._config.training
        for kind, frames in self._frames.items():
            self._frames[kind] = [pl.concat(frames, how="diagonal_relaxed")]
            tables.write_table(run, kind, self._frames[kind][0])
        checkpoint.store(run, training, self._groups.stacked(), iteration)
        steps, seconds = iteration * training.batch, round(self._seconds, 2)
        update_manifest(run, steps=steps, train_seconds=seconds)
        checkpoint.prune(run / NEWEST)
        self._stored, self._stored_at = iteration, time.monotonic()

    def _store_reference_episodes(self) -> None:
        """Whole episodes of the last policies: certification recognises the environment by them."""
        states = jax.tree.map(jnp.asarray, self._groups.stacked())
        with contextlib.suppress(CanaryError):  # then nothing can be compared
            episodes = reference_episodes(FrozenPolicies(self._config, states, self._stored, []))
            update_manifest(self._run, reference_episodes=episodes)


@contextmanager
def _enough_memory(config: RunConfig) -> Iterator[None]:
    """Raise a sentence if the batch does not fit into memory."""
    training = config.training
    # A step of a rollout has two inputs and about ten numbers beside them.
    least = 4 * training.batch * (2 * config.environment.observation_size + 10)
    try:
        if least > os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"):
            raise MemoryError
        yield
    except (MemoryError, jax.errors.JaxRuntimeError, ValueError) as error:
        if not isinstance(error, MemoryError) and "RESOURCE_EXHAUSTED" not in str(error):
            raise
        raise CanaryError(
            f"A batch of {training.environments:,} environments x {training.rollout_length:,} steps "
            "needs more memory than there is; make training.environments, "
            "training.rollout_length or the networks smaller."
        ) from error


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
