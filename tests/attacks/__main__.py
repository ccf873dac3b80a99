"""Run the attacks: `python -m attacks [--minutes 15] [--seed 0] [--state FILE] [--only NAME]`.

Every class gets an equal share of the time that is left. What was tried is kept in the state file,
and the next call goes on from there; a new seed, or no state file, starts again.
"""

import argparse
import json
import os
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

os.environ.setdefault("JAX_PLATFORMS", "cpu")
# Of small tables; more threads only wait for each other
os.environ.setdefault("POLARS_MAX_THREADS", "1")

import numpy as np

from attacks import command_lines, flips, kills, links, ownership, sick
from attacks.attack import Attack
from canary.runs.files import write_json

MODULES = (flips, links, command_lines, ownership, kills, sick)
ATTACKS: list[Attack] = [attack for module in MODULES for attack in module.ATTACKS]


SAVE_SECONDS = 5.0


def run_attack(
    attack: Attack, record: dict[str, Any], seed: int, deadline: float, save: Callable[[], object]
) -> None:
    """Go on with a class of attacks until its end or the deadline; what was tried is saved every
    few seconds."""
    saved = time.monotonic()
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="canary-attacks-"))
        attack.prepare(Path(folder))
        stack.callback(attack.close)
        while record["tried"] < attack.tries and time.monotonic() < deadline:
            number = record["tried"]
            problem = attack.attempt(number, np.random.default_rng([seed, number]))
            record["tried"] += 1
            record["survived"] += problem is None
            if problem is not None:
                record["failures"].append(f"try {number}: {problem}")
            if time.monotonic() - saved > SAVE_SECONDS:
                save()
                saved = time.monotonic()


def _save(path: Path, state: dict[str, Any]) -> None:
    write_json(path, state)


def main() -> int:
    parser = argparse.ArgumentParser(description="Attack canary and count what it survives.")
    parser.add_argument("--minutes", type=float, default=15)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--state", type=Path, default=Path(".attacks.json"))
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    state = json.loads(options.state.read_text()) if options.state.exists() else {}
    if state.get("seed") != options.seed:
        state = {"seed": options.seed, "classes": {}}
    end = time.monotonic() + 60 * options.minutes
    chosen = [attack for attack in ATTACKS if options.only in attack.name]
    for index, attack in enumerate(chosen):
        record = state["classes"].setdefault(
            attack.name, {"tried": 0, "survived": 0, "failures": []}
        )
        share = (end - time.monotonic()) / (len(chosen) - index)
        if record["tried"] < attack.tries and share > 0:
            save = partial(_save, options.state, state)
            run_attack(attack, record, options.seed, time.monotonic() + share, save)
            save()
        print(
            f"{attack.name:<28}{record['tried']:>6} of {attack.tries:>5} tried "
            f"{record['survived']:>6} survived",
            flush=True,
        )
        for failure in record["failures"][:5]:
            print(f"    {failure}")
    failed = sum(len(record["failures"]) for record in state["classes"].values())
    print(f"{failed} attacks succeeded; seed {options.seed}, state in {options.state}.")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
