"""A run that takes a moment once compiled, and the command line in a process of its own."""

import os
import subprocess
import sys
from pathlib import Path

from canary.config.config import RunConfig, make_config

SETTINGS = (
    "env.horizon=60", "algo.epochs=1", "algo.minibatch_size=1000", "algo.hidden=[16,16]",
    "training.merge_capacity=0", "training.environments=5",
)  # fmt: skip
STEPS = 4000
TINY = {
    "training.environments": 4, "training.rollout_length": 30, "training.chunk": 1, "algo.hidden": [4],
    "algo.epochs": 1,
}  # fmt: skip
FLAGS = ["--total-steps", str(STEPS), *(part for one in SETTINGS for part in ("--set", one))]
SOURCE = Path(__file__).resolve().parent.parent / "src"


def small_config(**training) -> RunConfig:
    """IcyLake with short episodes, tiny networks and few gradient steps; 200 steps per update."""
    small = {"seeds": (0, 1), "environments": 4, "rollout_length": 50, "chunk": 7, "updates": 60}
    training = small | training
    batch = training["environments"] * training["rollout_length"]
    training["total_steps"] = training.pop("updates") * batch
    overrides = ("env.horizon=20", "algo.hidden=[16]", "algo.epochs=2", "algo.minibatch_size=100")
    return make_config("IcyLake", "canary", overrides=overrides, **training)


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "canary", *arguments]


def environment() -> dict[str, str]:
    return os.environ | {"PYTHONPATH": str(SOURCE), "COLUMNS": "110"}


def run_canary(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(*arguments),
        capture_output=True,
        text=True,
        env=environment(),
        timeout=300,
        check=False,
    )
