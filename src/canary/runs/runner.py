"""Train: build the trainer, advance all seeds chunk by chunk, and keep the run directory true at
every moment.

At a checkpoint the tables of the iterations since the last one are written first and the state
after them, so whatever kills the process, the newest intact checkpoint and the rows before it are a
run that merely stopped there.
"""

import contextlib
import shutil
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from canary.config.config import RunConfig, config_to_dict
from canary.config.sources import source_from_dict
from canary.environments.failures import told_failures
from canary.environments.protocol import Environment, close
from canary.errors import CanaryError
from canary.runs import checkpoint, directory, files, lock, tables
from canary.exploration import with_initial_std
from canary.runs.building import make_groups
from canary.runs.devices import prepare_devices
from canary.runs.extension import extend
from canary.runs.faults import fault_sentence, find_fault, saved, unsound_sentence
from canary.runs.interruption import interruptible
from canary.runs.manifest import (
    checked_labels,
    is_trained_by_older_version,
    labels_of,
    read_manifest,
    stored_manifest,
    with_this_code,
)
from canary.runs.opening import describe_environment, is_ours, open_config
from canary.runs.policies import FrozenPolicies, reference_episodes
from canary.runs.records import PendingRows, RecentHistory, episodes_frame, metrics_frame
from canary.runs.seeds import SeedGroups
from canary.runs.stored_states import is_kept, newest, next_kept
from canary.runs.trust import remember
from canary.terminal import progress
from canary.training import FAULT
from canary.watching.watcher import Watcher

CHUNK_SECONDS = 2.0  # of one call of the program: the display and Ctrl-C wait for it


@dataclass(frozen=True)
class _Session:
    """A run that this process holds, and all that it is trained with."""

    config: RunConfig
    groups: SeedGroups
    run: Path
    held: lock.RunLock
    watcher: Watcher


def start_run(
    config: RunConfig,
    out: Path,
    *,
    quiet: bool = False,
    name: str | None = None,
    tags: Sequence[str] = (),
    watcher: Watcher | None = None,
) -> Path:
    """Train from the beginning in a new run directory below `out`; returns the directory."""
    files.check_name(out)
    watcher = watcher or Watcher()
    labels = checked_labels(out, name, tags, watcher.log)
    prepare_devices()
    described = describe_environment(config.environment)
    config = with_initial_std(config)
    groups = make_groups(config)
    groups.structure()  # what cannot be built must fail before anything is written
    training = config.training
    device = jax.devices()[0]
    is_new_place = not out.exists()
    headline = directory.Headline(
        config.environment_name,
        config.algorithm_name,
        len(training.seeds),
        training.updates * training.batch,
    )
    run = directory.create(
        out,
        headline,
        config_to_dict(config) | {"environment": described},
        device=f"{device.platform}: {device.device_kind}",
        command=sys.argv,
        labels=labels,
    )
    if "source" in described:  # it was just imported and called
        remember(run, source_from_dict(described["source"]))
    try:
        with lock.acquire(run) as held:
            _train(_Session(config, groups, run, held, watcher), resume=False, quiet=quiet)
    except BaseException:
        if not checkpoint.checkpoints(
            run / "checkpoints"
        ):  # nothing to go on from: leave nothing behind
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
    force: bool = False,
    quiet: bool = False,
    total_steps: int | None = None,
    watcher: Watcher | None = None,
) -> Path:
    """Go on where the newest intact checkpoint left off, as if the run had never stopped.

    `force` takes the run over from a process on another machine that holds it; `total_steps` trains
    longer than planned.
    """
    prepare_devices()
    config = open_config(run, environment)
    with lock.acquire(run, force=force) as held:
        clean(run)
        if is_trained_by_older_version(stored_manifest(run)):
            raise CanaryError(
                f"{run} is being trained by a process of an older version; wait for it or stop it "
                "first."
            )
        planned, notes = config.training.updates, []
        if total_steps is not None:
            config, notes = extend(run, config, total_steps)
        if stored_manifest(run)["status"] != "finished" or config.training.updates > planned:
            tables.adopt(run, directory.read_config(run))
            watcher = watcher or Watcher()
            if not watcher.log:
                watcher.log_to(labels_of(stored_manifest(run)).log)
            session = _Session(config, make_groups(config), run, held, watcher)
            code = with_this_code(stored_manifest(run))
            directory.update_manifest(
                run, status="running", process=directory.process_identity(), **code
            )
            _train(session, resume=True, quiet=quiet, notes=notes)
    return run


def clean(run: Path) -> None:
    """Remove what killed processes left behind in a run."""
    for folder in (
        run,
        run / "checkpoints",
        run / "kept",
        run / "exports",
        *(run / kind for kind in directory.COLUMNS),
    ):
        files.remove_orphans(folder)


def _train(session: _Session, *, resume: bool, quiet: bool, notes: Sequence[str] = ()) -> None:
    config, run, groups = session.config, session.run, session.groups
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
            interruptible(
                lambda: display.busy("stopping; Ctrl-C again stops at once")
            ) as interrupted,
        ):
            for note in notes:
                display.message(note, warning=True)
            if resume and checkpoint.checkpoints(run / "checkpoints"):
                iteration = _restore(session, display)
            else:
                display.busy("preparing the seeds")
                groups.start()
            session.held.check()
            directory.discard_after(run, iteration)
            display.busy("compiling")
            began = time.monotonic()
            groups.compile()
            # A machine whose locks are not seen here may have reached for it in the same moment
            session.held.check()
            directory.update_manifest(run, compile_seconds=round(time.monotonic() - began, 2))
            about = config_to_dict(config) | {"tags": list(labels_of(stored_manifest(run)).tags)}
            session.watcher.open(run, about, config.constraint, iteration, config.training.updates)
            status = _loop(session, iteration, display, interrupted)
            if status != "interrupted" and not is_ours(config.environment):
                display.busy("playing the last policies")
                _store_reference_episodes(session)
    except KeyboardInterrupt:
        status = "interrupted"
    finally:
        groups.close()
        close(config.environment)
        finished = datetime.now().astimezone().isoformat(timespec="seconds")
        seconds = round(before + time.monotonic() - started, 2)
        session.held.check()
        directory.update_manifest(run, status=status, finished=finished, wall_seconds=seconds)
        session.watcher.close()


def _restore(session: _Session, display: progress.TrainingProgress) -> int:
    """Take up the newest intact state, under the plan as it is now; returns the updates done."""
    config, groups = session.config, session.groups
    states, iteration, notes = newest(config, session.run, groups)
    updates = config.training.updates
    groups.restore(
        eqx.tree_at(lambda s: s.terms.updates, states, jnp.full_like(states.terms.updates, updates))
    )
    for note in (*notes, *groups.revive()):
        display.message(note, warning=True)
    display.message(f"Resuming {session.run} after update {iteration} of {updates}.")
    return iteration


def _loop(
    session: _Session, first: int, display: progress.TrainingProgress, interrupted: threading.Event
) -> str:
    """Advance until the end, an interruption or a watcher's stop; returns the status of the run."""
    config, groups, watcher = session.config, session.groups, session.watcher
    training = config.training
    history = RecentHistory(training.seeds, config.constraint)
    pending = PendingRows(session.run, first, config_to_dict(config), session.held)
    iteration, count, goes_on = first, 1, True
    most = 1 if watcher.sees_every_update else training.chunk
    while iteration < training.updates and goes_on and not interrupted.is_set():
        began = time.monotonic()
        count = min(count, next_kept(training, iteration) - iteration)
        metrics, ends = _advance(session, pending, iteration, count)
        seconds = time.monotonic() - began
        episodes = episodes_frame(ends, training.seeds, iteration)
        rows = metrics_frame(metrics, training.seeds, iteration, training.batch)
        pending.add(rows, episodes, seconds)
        history.add(metrics, rows, episodes)
        iteration += count
        steps = count * training.batch * len(training.seeds)
        display.update(
            history.status(), iteration * training.batch * len(training.seeds), steps / seconds
        )
        count = max(1, min(most, round(count * CHUNK_SECONDS / seconds)))
        keep = is_kept(training, iteration)
        if keep or pending.age() >= training.checkpoint_seconds:
            pending.commit(groups, iteration, iteration * training.batch, keep=keep)
            display.notice(f"checkpoint saved after update {iteration}")
        try:
            goes_on = watcher.see(rows, episodes)
        except BaseException:
            pending.commit(groups, iteration, iteration * training.batch)
            raise
    pending.commit(groups, iteration, iteration * training.batch)
    if iteration < training.updates:
        return "interrupted" if goes_on else "stopped"
    # A kill may have come between the last one and the removal of older ones.
    checkpoint.prune(session.run / "checkpoints")
    directory.compact(session.run)
    return "finished"


def _advance(session: _Session, pending: PendingRows, iteration: int, count: int) -> Any:
    """The records of so many updates. On a fault, save the states before them and raise."""
    groups, run = session.groups, session.run
    try:
        with told_failures(session.config.environment):
            metrics, ends = groups.advance(count)
        fault = _fault(session, metrics.pop(FAULT), ends, (iteration, iteration + count))
        if fault is None:
            return metrics, ends
        groups.rewind()
    except CanaryError as error:  # the states are still those before
        fault = f"{error} {saved(iteration, run)}"
    pending.commit(groups, iteration, iteration * session.config.training.batch)
    raise CanaryError(fault)


def _fault(session: _Session, noted: Any, ends: Any, updates: tuple[int, int]) -> str | None:
    """What cannot be in the updates [first, last): noted by the program, told by the episodes, or
    in the weights."""
    training, horizon = session.config.training, session.config.environment.horizon
    found = find_fault(noted, ends, training.environments, horizon)
    if found is not None:
        return fault_sentence(found, session.config, updates[0], session.run)
    return unsound_sentence(session.groups.unsound(), *updates, session.run)


def _store_reference_episodes(session: _Session) -> None:
    """Whole episodes of the last policies, by which certification recognises the environment."""
    states = jax.tree.map(jnp.asarray, session.groups.stacked())
    done = int(states.terms.iteration[0])
    with contextlib.suppress(CanaryError):  # then nothing can be compared
        episodes = reference_episodes(FrozenPolicies(session.config, states, done, []))
        directory.update_manifest(session.run, reference_episodes=episodes)
