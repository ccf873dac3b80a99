"""`canary compare`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

from tyro.conf import Positional

from canary.cli.common import Json, RunsFolder, Switch, flag
from canary.errors import CanaryError
from canary.terminal.console import check_json, console_for, emit_json


@dataclass(frozen=True, kw_only=True)
class Compare:
    """Draw runs of one environment together: what differs, return and constraint with intervals
    over seeds."""

    EXAMPLES: ClassVar[str] = """
  canary compare baseline wide                       two runs by name: a table, and compare.png
  canary compare runs/A runs/B runs/C --out abc.png
  canary compare baseline wide --json - | jq .runs[1].return_against_first

The numbers are of the second half of training, the intervals Student's over seeds at 95%. The first run is the one that the
others are compared with, seed by seed."""

    names: Annotated[Positional[tuple[str, ...]], flag("RUN RUN [RUN ...]")] = ()
    """Two or more runs: path, name below --runs, or latest."""
    out: Annotated[str, flag("FILE", "compare.png")] = "compare.png"
    """Where the figure goes."""
    runs: RunsFolder = "runs"
    json: Json = None
    """Write the comparison as JSON to a file, or to standard output (-) and nothing else there."""
    quiet: Switch = False
    """Print no table, only the path of the figure."""


def compare(options: Compare) -> int:
    check_json(options.json)
    out = Path(options.out)
    if out.suffix != ".png" or out.is_dir():
        raise CanaryError(
            f"--out names the figure, a file that ends in .png, not {options.out!r:.80}."
        )
    from canary.reporting.comparison import compare_runs
    from canary.runs.directory import find_run
    from canary.terminal.tables import print_comparison

    comparison = compare_runs([find_run(name, Path(options.runs)) for name in options.names], out)
    if not options.quiet:
        console = console_for(options.json)
        print_comparison(console, comparison)
        console.say(f"figure      {out}")
    elif options.json != "-":
        print(out)
    emit_json(options.json, dict(comparison))
    return 0
