"""`canary report`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

from tyro.conf import Positional

from canary.cli.common import RunsFolder, Switch, flag
from canary.errors import CanaryError
from canary.terminal.console import counting_bar


@dataclass(frozen=True, kw_only=True)
class Report:
    """One HTML page to look at: curves, costs, tiers, bound and frontier of runs or of a study; it
    opens offline."""

    EXAMPLES: ClassVar[str] = """
  canary report                                      the newest run, into report.html
  canary report RUN RUN --out compare.html           several runs on one page
  canary report table1                               all rows of a study with stored results

The page is one file without any address in it. A run may still be training."""

    names: Annotated[Positional[tuple[str, ...]], flag("RUN|STUDY", "latest")] = ("latest",)
    """Runs (path, name below --runs, or latest) and studies (a name below --results)."""
    out: Annotated[str, flag("FILE", "report.html")] = "report.html"
    """Where the page goes."""
    runs: RunsFolder = "runs"
    results: Annotated[str, flag("DIR", "results")] = "results"
    """Directory that holds the results of studies."""
    no_frontier: Switch = False
    """Leave out the exact frontier, which takes a while to compute."""
    quiet: Switch = False
    """Show no progress; print the path alone."""


def report(options: Report) -> int:
    from canary.reporting.page import make_report

    out = Path(options.out)
    if out.is_dir() or not out.parent.is_dir():
        raise CanaryError(
            f"--out names the file of the page, such as report.html; {out} cannot be one."
        )
    with counting_bar("solving", quiet=options.quiet or options.no_frontier) as progress:
        path = make_report(
            options.names or ("latest",), Path(options.runs), Path(options.results), out,
            frontier=not options.no_frontier, progress=progress,
        )  # fmt: skip
    print(path if options.quiet else f"page    {path}")
    return 0
