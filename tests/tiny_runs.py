"""A run that takes a moment once its program is compiled, and the command line in a process of its
own."""

import os
import subprocess
import sys
from pathlib import Path

SETTINGS = (
    "env.horizon=60", "algo.epochs=1", "algo.minibatch_size=1000", "algo.hidden=[16,16]",
    "training.merge_capacity=0", "training.environments=5",
)  # fmt: skip
STEPS = 4000
FLAGS = ["--total-steps", str(STEPS), *(part for one in SETTINGS for part in ("--set", one))]
SOURCE = Path(__file__).resolve().parent.parent / "src"


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
