"""Two walks through the code, measured: how far is it to the constraint?

    python tests/walks.py

From a command: the calls that are open when the constraint's bound is computed. From a cost: the
files that run between the environment's step and the bound.
"""

import sys
import tempfile
from pathlib import Path

import canary.algorithms.canary as method
from canary.cli import main
from canary.environments.icy_lake import IcyLake

SOURCE = Path(method.__file__).parents[1]
COMMAND = "train --seeds 1 --total-steps 2000 --set env.horizon=20 --no-final-check --quiet"


def walks() -> dict[str, list[str]]:
    """For each walk the places, in order: "file:function" of a command, "file" of a cost."""
    found: dict[str, list[str]] = {}
    passed: list[str] = []

    def place(frame) -> str | None:
        path = Path(frame.f_code.co_filename)
        inside = path.is_relative_to(SOURCE) and not frame.f_code.co_name.startswith("<")
        return f"{path.relative_to(SOURCE)}:{frame.f_code.co_name}" if inside else None

    def profile(frame, event, _):
        if event != "call" or "from a command" in found:
            return
        if frame.f_code is IcyLake.step.__code__:
            passed.clear()
        if (here := place(frame)) is not None:
            passed.append(here.split(":")[0])
        if frame.f_code is method.shaped_bound.__code__:
            stack = []
            while frame is not None:
                stack.append(place(frame))
                frame = frame.f_back
            found["from a command"] = [at for at in reversed(stack) if at is not None]
            found["from a cost"] = list(dict.fromkeys(passed))
            sys.setprofile(None)

    with tempfile.TemporaryDirectory() as place_of_runs:
        sys.setprofile(profile)
        try:
            main([*COMMAND.split(), "--out", place_of_runs])
        finally:
            sys.setprofile(None)
    return found


if __name__ == "__main__":
    for name, places in walks().items():
        files = {at.split(":")[0] for at in places}
        print(f"{name}: {len(places)} places in {len(files)} files", *places, sep="\n  ")
