"""`canary bench`."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

from canary.commands.common import Json, flag, whole
from canary.errors import CanaryError
from canary.output import check_json, console_for, emit_json


@dataclass(frozen=True, kw_only=True)
class Bench:
    """Measure training speed against a plain reference, as ratios in one run on this machine."""

    EXAMPLES: ClassVar[str] = """
  canary bench                                       about ten minutes on two cores
  canary bench --updates 10 --many-seeds 0 --json speed.json

The benchmarks come with a source checkout (benchmarks/); they are not part of an installed package."""

    seeds: Annotated[str, flag("N", "4")] = "4"
    """Seeds trained side by side."""
    many_seeds: Annotated[str, flag("N", "30")] = "30"
    """Seeds for the comparison of the cost per seed; 0 leaves it out."""
    updates: Annotated[str, flag("N", "30")] = "30"
    """Updates that are timed."""
    json: Json = None
    """Write the measurements as JSON to a file, or to standard output (-) and nothing else there."""


def bench(options: Bench) -> int:
    check_json(options.json)
    checkout = Path(__file__).parents[3]
    if not (checkout / "benchmarks" / "training_speed.py").exists():
        raise CanaryError(
            "canary bench needs a source checkout with its benchmarks/ directory; there is none here."
        )
    sys.path.insert(0, str(checkout))
    from benchmarks.training_speed import run

    console = console_for(options.json)
    counts = (
        whole(f"--{name.replace('_', '-')}", getattr(options, name))
        for name in ("seeds", "many_seeds", "updates")
    )
    seeds, many_seeds, updates = counts
    if min(seeds, updates) < 1:
        raise CanaryError("canary bench needs at least one seed and one update.")
    emit_json(
        options.json, run(seeds, many_seeds, updates, show=lambda line: console.print(line, highlight=False))
    )
    return 0
