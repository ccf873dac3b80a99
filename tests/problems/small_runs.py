"""Runs of seconds for tests of the machinery; `python -m problems.small_runs RUN` goes on with
one."""

import sys
from pathlib import Path

from canary.config.config import RunConfig, make_config

SEEDS, UPDATES = (0, 1), 60


def small_config(**training) -> RunConfig:
    """IcyLake with short episodes, tiny networks and few gradient steps; 200 steps per update."""
    training = {
        "seeds": SEEDS,
        "environments": 4,
        "rollout_length": 50,
        "chunk": 7,
        "updates": UPDATES,
    } | training
    training["total_steps"] = (
        training.pop("updates") * training["environments"] * training["rollout_length"]
    )
    overrides = (
        "env.horizon=20",
        "algo.hidden=[16]",
        "algo.epochs=2",
        "algo.minibatch_size=100",
    )
    return make_config("IcyLake", "canary", overrides=overrides, **training)


def run_config() -> RunConfig:
    """A checkpoint after every chunk, and chunks short enough for many of them."""
    return small_config(chunk=2, checkpoint_seconds=0, merge_capacity=0)


if __name__ == "__main__":
    from canary.runs.runner import resume_run

    resume_run(Path(sys.argv[1]).resolve())
