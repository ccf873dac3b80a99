"""`canary bench`."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

from tyro.conf import Positional

from canary.cli.common import Json, flag, whole
from canary.errors import CanaryError, nearest
from canary.terminal.output import check_json, console_for, emit_json

SUBJECTS = ("training", "envs")
MOST = 10_000  # of anything that is counted here


@dataclass(frozen=True, kw_only=True)
class Bench:
    """Measure the speed of training or of environments, as ratios in one run on this machine."""

    EXAMPLES: ClassVar[str] = """
  canary bench                                       training: about ten minutes on two cores
  canary bench --updates 10 --many-seeds 0 --json speed.json
  canary bench envs                                  environments: about two minutes

The benchmarks come with a source checkout (benchmarks/); they are not part of an installed package."""

    what: Annotated[Positional[str], flag("training|envs", "training")] = "training"
    """What is measured: training against a plain reference, or the environments' own steps."""
    seeds: Annotated[str, flag("N", "4")] = "4"
    """Training: seeds trained side by side."""
    many_seeds: Annotated[str, flag("N", "30")] = "30"
    """Training: seeds for the comparison of the cost per seed; 0 leaves it out."""
    updates: Annotated[str, flag("N", "30")] = "30"
    """Training: updates that are timed."""
    steps: Annotated[str, flag("N", "200")] = "200"
    """Envs: steps of each environment that are timed."""
    mjx_steps: Annotated[str, flag("N", "20")] = "20"
    """Envs: the same for MJX, which is slow on a CPU; 0 leaves it out."""
    json: Json = None
    """Write the measurements as JSON to a file, or to standard output (-) and nothing else
    there."""


def bench(options: Bench) -> int:
    check_json(options.json)
    if options.what not in SUBJECTS:
        raise CanaryError(
            f"canary bench cannot measure {options.what!r}{nearest(options.what, SUBJECTS)}"
        )
    checkout = Path(__file__).parents[3]
    if not (checkout / "benchmarks" / "training_speed.py").exists():
        raise CanaryError(
            "canary bench needs a source checkout with its benchmarks/ directory; there is none "
            "here."
        )
    sys.path.insert(0, str(checkout))
    console = console_for(options.json)

    def show(line: str) -> None:
        console.print(line, highlight=False)

    emit_json(
        options.json,
        _environments(options, show) if options.what == "envs" else _training(options, show),
    )
    return 0


def _training(options: Bench, show: Any) -> dict[str, Any]:
    from benchmarks.training_speed import run

    seeds, many_seeds, updates = _counts(options, "seeds", "many_seeds", "updates")
    if min(seeds, updates) < 1:
        raise CanaryError("canary bench needs at least one seed and one update.")
    return run(seeds, many_seeds, updates, show=show)


def _environments(options: Bench, show: Any) -> dict[str, Any]:
    steps, mjx_steps = _counts(options, "steps", "mjx_steps")
    if steps < 1:
        raise CanaryError("canary bench envs needs at least one step.")
    from canary.runs.devices import prepare_devices

    prepare_devices()
    from benchmarks.environment_speed import run

    return run(steps, mjx_steps, show=show)


def _counts(options: Bench, *names: str) -> list[int]:
    counts = [whole(f"--{name.replace('_', '-')}", getattr(options, name)) for name in names]
    for name, count in zip(names, counts, strict=True):
        if count > MOST:
            raise CanaryError(f"--{name.replace('_', '-')} takes at most {MOST:,}, not {count:,}.")
    return counts
