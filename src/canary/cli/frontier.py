"""`canary frontier`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

from tyro.conf import UseAppendAction

from canary.cli.common import Json, RunsFolder, Switch, Trust, flag, number, opened
from canary.terminal.console import check_json, console_for, counting_bar, emit_json


@dataclass(frozen=True, kw_only=True)
class Frontier:
    """The exact best return under each kind of constraint, and how far trained runs are from it."""

    EXAMPLES: ClassVar[str] = """
  canary frontier                                    IcyLake, the paper's limit and epsilon
  canary frontier --limit 15 --epsilon 0.1 --set env.map=8x8
  canary frontier --run latest --out frontier        with the policies of a run, evaluated exactly

By dynamic programming over (time, state, spent cost), so only for finite environments. Beside VaR,
CVaR and Cantelli's bound over epsilon it shows Cantelli's bound on the shaped cost over the dead
zone. --out gets the figure and the tables as files."""

    env: Annotated[str | None, flag("NAME", "that of the first --run, else IcyLake")] = None
    """Environment: one of ours or package.module:Factory; it must be finite, and state its
    finite_tables()."""
    limit: Annotated[str | None, flag("COST", "the paper's: 5.5 on IcyLake")] = None
    """Cost limit."""
    epsilon: Annotated[str | None, flag("PROBABILITY", "the paper's: 0.02")] = None
    """Largest allowed probability of a violation."""
    set: Annotated[tuple[str, ...], UseAppendAction, flag("env.NAME=VALUE")] = ()
    """Change a setting of the environment. Repeatable."""
    run: Annotated[tuple[str, ...], UseAppendAction, flag("RUN")] = ()
    """Draw the policies of a run into it: its path, its name below --runs, or latest.
    Repeatable."""
    trust: Trust = False
    runs: RunsFolder = "runs"
    out: Annotated[str | None, flag("DIR")] = None
    """Write figure and tables there."""
    json: Json = None
    """Write the report as JSON to a file, or to standard output (-) and nothing else there."""
    quiet: Switch = False
    """Show no progress and no table."""


def frontier(options: Frontier) -> int:
    check_json(options.json)
    from canary.config.config import make_config
    from canary.constraints import one_cost
    from canary.exact.figure import save_frontier
    from canary.exact.run import frontier_report
    from canary.runs.environment import open_config
    from canary.terminal.tables import print_frontier

    said = {"limit": options.limit, "epsilon": options.epsilon}
    asked = {name: number(f"--{name}", text) for name, text in said.items() if text is not None}
    runs = [opened(name, options.runs, trust=options.trust) for name in options.run]
    if runs and options.env is None and not options.set and not asked:
        config = open_config(runs[0])
    else:
        config = make_config(options.env or "IcyLake", constraint=asked, overrides=options.set)
    constraint = one_cost(config.constraint, "A frontier")
    with counting_bar("solving", quiet=options.quiet) as report:
        result = frontier_report(
            config.environment,
            constraint.limit,
            constraint.share,
            runs=runs,
            progress=report,
        )
    paths: dict[str, Any] = save_frontier(result, Path(options.out)) if options.out else {}
    if not options.quiet:
        console = console_for(options.json)
        print_frontier(console, result)
        for label, path in paths.items():
            console.say(f"{label:<12}{path}")
    emit_json(options.json, result)
    return 0
