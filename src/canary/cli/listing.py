"""`canary list`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

from canary.cli.common import Json, RunsFolder, flag
from canary.terminal.console import check_json, console_for, emit_json


@dataclass(frozen=True, kw_only=True)
class List:
    """Show the runs below a directory, and the environments, algorithms and presets there are; or
    all settings of one."""

    EXAMPLES: ClassVar[str] = """
  canary list
  canary list --settings canary        everything that --set algo.NAME=VALUE can change
  canary list --settings IcyLake       the same of an environment; `training` has settings too
  canary list --tag sizes              runs with a tag
  canary list --out elsewhere --json - | jq -r '.runs[].path'"""

    out: RunsFolder = "runs"
    tag: Annotated[str | None, flag("TAG")] = None
    """Show only runs with this tag."""
    settings: Annotated[str | None, flag("NAME")] = None
    """Show the settings of this algorithm or environment, or of training, with default, range and
    meaning."""
    json: Json = None
    """Write the list as JSON to a file, or to standard output (-) and nothing else there."""


def show(options: List) -> int:
    check_json(options.json)
    if options.settings is not None:
        return _show_settings(options)
    from canary.algorithms import DESCRIPTIONS as ALGORITHMS
    from canary.config import PRESETS
    from canary.environments import DESCRIPTIONS
    from canary.runs import directory
    from canary.runs.settings import differing
    from canary.terminal.tables import print_lists, run_record

    rows = [
        row for row in directory.list_runs(Path(options.out)) if options.tag in (None, *row.tags)
    ]
    differences = differing([row.config for row in rows])
    runs = [run_record(row, differs) for row, differs in zip(rows, differences, strict=True)]
    known = {"environments": DESCRIPTIONS, "algorithms": ALGORITHMS, "presets": PRESETS}
    if options.json != "-":
        print_lists(console_for(options.json), options.out, runs, known)
    emit_json(options.json, {"runs": runs, **known})
    return 0


def _show_settings(options: List) -> int:
    from canary.config.catalogue import settings_of
    from canary.terminal.tables import print_settings

    rows = settings_of(options.settings or "")
    if options.json != "-":
        print_settings(console_for(options.json), rows)
    emit_json(options.json, {"settings": rows})
    return 0
