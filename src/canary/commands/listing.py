"""`canary list`."""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from canary.commands.common import Json, Out
from canary.output import check_json, console_for, emit_json


@dataclass(frozen=True, kw_only=True)
class List:
    """Show the runs below a directory, and the environments, algorithms and presets there are."""

    EXAMPLES: ClassVar[str] = """
  canary list
  canary list --out elsewhere --json - | jq -r '.runs[].path'"""

    out: Out = "runs"
    """Directory that holds the runs."""
    json: Json = None
    """Write the list as JSON to a file, or to standard output (-) and nothing else there."""


def show(options: List) -> int:
    check_json(options.json)
    from canary.experiments import names, storage
    from canary.listing import print_lists, run_record

    runs = [run_record(row) for row in storage.list_runs(Path(options.out))]
    known = {"environments": names.ENVIRONMENTS, "algorithms": names.ALGORITHMS, "presets": names.PRESETS}
    if options.json != "-":
        print_lists(console_for(options.json), options.out, runs, known)
    emit_json(options.json, {"runs": runs, **known})
    return 0
