"""`canary frontier`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

from tyro.conf import UseAppendAction

from canary.commands.common import Json, Switch, flag
from canary.output import check_json, console_for, emit_json


@dataclass(frozen=True, kw_only=True)
class Frontier:
    """The exact best return under each kind of constraint, and how far trained runs are from it."""

    EXAMPLES: ClassVar[str] = """
  canary frontier                                    IcyLake, the paper's limit and epsilon
  canary frontier --limit 15 --epsilon 0.1 --set env.map=8x8
  canary frontier --run latest --out frontier        with the policies of a run, evaluated exactly

By dynamic programming over (time, state, spent cost), so only for finite environments. --out gets the figure and
the tables as files."""

    env: Annotated[str, flag("NAME", "IcyLake")] = "IcyLake"
    """Environment; it must be finite."""
    limit: Annotated[str | None, flag("COST", "the paper's: 5.5 on IcyLake")] = None
    """Cost limit."""
    epsilon: Annotated[str | None, flag("PROBABILITY", "the paper's: 0.02")] = None
    """Largest allowed probability of a violation."""
    set: Annotated[tuple[str, ...], UseAppendAction, flag("env.NAME=VALUE")] = ()
    """Change a setting of the environment. Repeatable."""
    run: Annotated[tuple[str, ...], UseAppendAction, flag("RUN")] = ()
    """Draw the policies of a run into it: its path, its name below --runs, or latest. Repeatable."""
    runs: Annotated[str, flag("DIR", "runs")] = "runs"
    """Directory that holds the runs."""
    out: Annotated[str | None, flag("DIR")] = None
    """Write figure and tables there."""
    json: Json = None
    """Write the report as JSON to a file, or to standard output (-) and nothing else there."""
    quiet: Switch = False
    """Show no progress and no table."""


def frontier(options: Frontier) -> int:
    check_json(options.json)
    from canary.experiments import storage
    from canary.experiments.config import make_config
    from canary.experiments.frontiers import frontier_report
    from canary.experiments.progress import counting_bar
    from canary.reporting.frontier import print_frontier, save_frontier

    constraint = {"constraint.limit": options.limit, "constraint.epsilon": options.epsilon}
    said = (f"{name}={text}" for name, text in constraint.items() if text is not None)
    config = make_config(options.env, overrides=(*options.set, *said))
    runs = [storage.find_run(name, Path(options.runs)) for name in options.run]
    with counting_bar("solving", quiet=options.quiet) as report:
        result = frontier_report(
            config.environment, config.constraint.limit, config.constraint.epsilon, runs=runs, progress=report
        )
    paths: dict[str, Any] = save_frontier(result, Path(options.out)) if options.out else {}
    if not options.quiet:
        console = console_for(options.json)
        print_frontier(console, result)
        for label, path in paths.items():
            console.print(f"{label:<12}{path}", soft_wrap=True)
    emit_json(options.json, result)
    return 0
