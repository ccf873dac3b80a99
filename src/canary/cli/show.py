"""`canary list`, `canary compare` and `canary report`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

from tyro.conf import Positional

from canary.cli import options
from canary.errors import CanaryError
from canary.terminal.console import console_for, emit_json


@dataclass(frozen=True, kw_only=True)
class List:
    """List runs, environments, algorithms and presets, or all settings of one of them."""

    EXAMPLES: ClassVar[str] = """
  canary list
  canary list --settings canary        everything that --set algo.NAME=VALUE can change
  canary list --settings IcyLake       those of an environment; `training` has settings too
  canary list --tag sizes              runs with a tag
  canary list --out elsewhere --json - | jq -r '.runs[].path'"""

    out: options.RunsFolder = "runs"
    tag: Annotated[str | None, options.flag("TAG")] = None
    """Show only runs with this tag."""
    settings: Annotated[str | None, options.flag("NAME")] = None
    """Show the settings of this algorithm, this environment or training: default, range and
    meaning."""
    json: Annotated[str | None, options.flag("FILE|-")] = None
    """Write the lists as JSON to a file, or to standard output (-)."""

    def __call__(self) -> int:
        from canary.algorithms import DESCRIPTIONS as ALGORITHMS
        from canary.config import PRESETS
        from canary.environments import DESCRIPTIONS
        from canary.runs.directory import list_runs
        from canary.runs.settings import differing
        from canary.terminal.tables import print_lists, print_settings, run_record

        if self.settings is not None:
            from canary.config.config import settings_table

            rows = settings_table(self.settings)
            if self.json != "-":
                print_settings(console_for(self.json), rows)
            emit_json(self.json, {"settings": rows})
            return 0
        rows = [row for row in list_runs(Path(self.out)) if self.tag in (None, *row["tags"])]
        differences = differing([row.get("config") for row in rows])
        runs = [run_record(row, differs) for row, differs in zip(rows, differences, strict=True)]
        known = {"environments": DESCRIPTIONS, "algorithms": ALGORITHMS, "presets": PRESETS}
        if self.json != "-":
            print_lists(console_for(self.json), self.out, runs, known)
        emit_json(self.json, {"runs": runs, **known})
        return 0


@dataclass(frozen=True, kw_only=True)
class Compare(options.Output):
    """Compare runs of one environment: differing settings, return and constraint."""

    EXAMPLES: ClassVar[str] = """
  canary compare baseline wide                       two runs by name: a table, and compare.png
  canary compare runs/A runs/B runs/C --out abc.png
  canary compare baseline wide --json - | jq .runs[1].return_against_first

The numbers describe the second half of training, with Student's 95% intervals over seeds. Each run is compared with the
first, seed by seed."""

    names: Annotated[Positional[tuple[str, ...]], options.flag("RUN RUN [RUN ...]")] = ()
    """Two or more runs: path, name below --runs, or latest."""
    out: Annotated[str, options.flag("FILE", "compare.png")] = "compare.png"
    """File of the figure."""
    runs: options.RunsFolder = "runs"

    def __call__(self) -> int:
        out = Path(self.out)
        if out.suffix != ".png" or out.is_dir():
            raise CanaryError(
                f"--out names the figure, a file that ends in .png, not {self.out!r:.80}."
            )
        from canary.reporting.comparison import compare_runs
        from canary.runs.directory import find_run
        from canary.terminal.tables import print_comparison

        comparison = compare_runs([find_run(name, Path(self.runs)) for name in self.names], out)
        if self.quiet and self.json != "-":
            print(out)
        self.show(comparison, print_comparison, figure=out)
        return 0


@dataclass(frozen=True, kw_only=True)
class Report:
    """Write an HTML page about runs or a study: curves, costs, updates and final policies."""

    EXAMPLES: ClassVar[str] = """
  canary report                                      the newest run, into report.html
  canary report RUN RUN --out compare.html           several runs on one page
  canary report table1                               all rows of a study with stored results

The page is one file and loads nothing from the network. A run may still be training."""

    names: Annotated[Positional[tuple[str, ...]], options.flag("RUN|STUDY", "latest")] = ("latest",)
    """Runs (path, name below --runs, or latest) and studies (a name below --results)."""
    out: Annotated[str, options.flag("FILE", "report.html")] = "report.html"
    """File of the page."""
    runs: options.RunsFolder = "runs"
    results: options.ResultsFolder = "results"
    quiet: options.Switch = False
    """Print nothing but the path of the page."""

    def __call__(self) -> int:
        from canary.reporting.page import make_report

        out = Path(self.out)
        if out.is_dir() or not out.parent.is_dir():
            raise CanaryError(
                f"--out names the file of the page, such as report.html; {out} cannot be one."
            )
        path = make_report(self.names or ("latest",), Path(self.runs), Path(self.results), out)
        print(path if self.quiet else f"page    {path}")
        return 0
