"""Runs of seconds for tests of the machinery, and a process that trains one and dies where it is told to.

    python -m problems.small_runs start OUT [KILL]     python -m problems.small_runs resume RUN [KILL]

KILL is `half:PART:N`, `written:PART:N` or `renamed:PART:N`: SIGKILL when the N-th file with PART in its path
is half written, is written but not yet in its place, or has just been put there.
"""

import os
import signal
import sys
from pathlib import Path

from canary.config.config import RunConfig, make_config

SEEDS, UPDATES = (0, 1), 60


def small_config(**training) -> RunConfig:
    """IcyLake with short episodes, tiny networks and cheap critics; 200 steps per update."""
    training = {
        "seeds": SEEDS,
        "environments": 4,
        "rollout_length": 50,
        "chunk": 7,
        "updates": UPDATES,
    } | training
    training["total_steps"] = training.pop("updates") * training["environments"] * training["rollout_length"]
    overrides = ("env.horizon=20", "algo.hidden=[16]", "algo.critic.epochs=3", "algo.critic.minibatches=1")
    return make_config("IcyLake", "canary", overrides=overrides, **training)


def run_config() -> RunConfig:
    """A checkpoint after every chunk, and chunks short enough for many of them."""
    return small_config(chunk=2, checkpoint_seconds=0, merge_capacity=0)


def die_at(kind: str, part: str, number: int) -> None:
    """Every file goes through two calls: fsync when it is written, replace when it is put in its place."""
    fsync, replace, left = os.fsync, os.replace, {"files": number}

    def is_time(moment: str, path: Path) -> bool:
        if moment == kind and part in path.as_posix() and not path.is_dir():
            left["files"] -= 1
        return left["files"] == 0

    def die() -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def dying_fsync(descriptor: int) -> None:
        path = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
        if is_time("half", path):
            os.ftruncate(descriptor, os.fstat(descriptor).st_size // 2)
            die()
        if is_time("written", path):
            die()
        fsync(descriptor)

    def dying_replace(source: Path, target: Path) -> None:
        replace(source, target)
        if is_time("renamed", Path(target)):
            die()

    os.fsync, os.replace = dying_fsync, dying_replace


def main() -> None:
    from canary.runs.runner import resume_run, start_run

    command, place, *kill = sys.argv[1:]
    path = Path(place).resolve()
    if kill:
        kind, part, number = kill[0].split(":")
        die_at(kind, part, int(number))
    if command == "start":
        start_run(run_config(), path)
    else:
        resume_run(path)


if __name__ == "__main__":
    main()
