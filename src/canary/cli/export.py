"""`canary export`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

from canary.cli.common import Json, OneRun, RunsFolder, Switch, Trust, flag, opened, whole
from canary.terminal.console import check_json, console_for, emit_json


@dataclass(frozen=True, kw_only=True)
class Export:
    """Write a trained policy with its normaliser and cost account as one file, checked against
    JAX."""

    EXAMPLES: ClassVar[str] = """
  canary export                                      the newest run, its first seed, as ONNX
  canary export runs/NAME --format numpy --seed 2    for a machine that has only numpy
  canary export --file policy.onnx

A policy depends on the cost spent so far; docs/export.md shows how to serve one."""

    run: OneRun = "latest"
    format: Annotated[str, flag("onnx|numpy", "onnx")] = "onnx"
    """Kind of file."""
    seed: Annotated[str | None, flag("N", "the run's first")] = None
    """Which seed's policy."""
    step: Annotated[str | None, flag("STEP", "the newest")] = None
    """The policy after so many steps per seed, if the run kept that state."""
    file: Annotated[str | None, flag("FILE", "in RUN/exports")] = None
    """Where to write it."""
    trust: Trust = False
    out: RunsFolder = "runs"
    json: Json = None
    """Write what was exported as JSON to a file, or to standard output (-) and nothing else
    there."""
    quiet: Switch = False
    """Print nothing."""


def export(options: Export) -> int:
    check_json(options.json)
    from canary.export.run import export_run

    result = export_run(
        opened(options.run, options.out, trust=options.trust),
        format=options.format,
        seed=whole("--seed", options.seed),
        step=whole("--step", options.step),
        out=None if options.file is None else Path(options.file),
    )
    if not options.quiet:
        console_for(options.json).say(
            f"{result['path']}\n{result['format']}, {result['bytes']:,} bytes; differs from JAX by "
            "at most "
            f"{result['max_abs_difference']:.1e} on {result['checked_inputs']} inputs"
        )
    emit_json(options.json, result)
    return 0
