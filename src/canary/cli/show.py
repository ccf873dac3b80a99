"""`canary list`, `compare`, `report`, `check-env` and `frontier`: commands that train nothing."""

import math
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

from tyro.conf import Positional

from canary.cli import options
from canary.errors import CanaryError
from canary.terminal.console import counting_bar
from canary.values import Count

EPISODES, SECONDS = 128, 45.0  # per policy, and for all policies together, by default
EnvironmentSettings = Annotated[
    options.Repeated,
    options.flag("env.NAME=VALUE", about="Change a setting of the environment. Repeatable."),
]


@dataclass(frozen=True, kw_only=True)
class List(options.Output):
    """List runs, environments, algorithms and presets, or all settings of one of them."""

    EXAMPLES: ClassVar[str] = """
  canary list
  canary list --settings canary        everything that --set algo.NAME=VALUE can change
  canary list --settings IcyLake       settings of an environment; `training` has settings too
  canary list --out elsewhere --json - | jq -r '.runs[].path'"""

    out: options.RunsFolder = "runs"
    settings: Annotated[str | None, options.flag("NAME")] = None
    """Show the settings of this algorithm, this environment or training: default, range and
    meaning."""

    def __call__(self) -> int:
        from canary.algorithms import DESCRIPTIONS as ALGORITHMS
        from canary.config import PRESETS
        from canary.environments import DESCRIPTIONS
        from canary.runs.directory import list_runs
        from canary.runs.settings import differing
        from canary.terminal.tables import print_lists, print_settings, run_record

        if self.settings is not None:
            from canary.config.config import settings_table

            self.show({"settings": settings_table(self.settings)}, print_settings)
            return 0
        rows = list_runs(Path(self.out))
        differences = differing([row.get("config") for row in rows])
        runs = [run_record(row, differs) for row, differs in zip(rows, differences, strict=True)]
        known = {"environments": DESCRIPTIONS, "algorithms": ALGORITHMS, "presets": PRESETS}
        self.show({"runs": runs, **known}, print_lists, self.out)
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
                f"--out must name the file of the page, such as report.html, not {out}."
            )
        path = make_report(self.names or ("latest",), Path(self.runs), Path(self.results), out)
        print(path if self.quiet else f"page    {path}")
        return 0


@dataclass(frozen=True, kw_only=True)
class CheckEnv(options.Limits):
    """Check an environment (shapes, types, randomness, ends, costs) and suggest limits."""

    EXAMPLES: ClassVar[str] = """
  canary check-env shop:Shop                         your own environment, in shop.py
  canary check-env shop:Shop --set env.price=2 --limit 6 --epsilon 0.05
  canary check-env shop:Shop --constraint mean --limit 3
  canary check-env gymnasium:Pendulum-v1 --cost shop:speed
  canary check-env gymnasium:shop:Tank --set env.horizon=200     your own Gymnasium class, without a spec
  canary check-env IcyLake --json -

The check traces the environment and plays random episodes. It repeats their first steps: the same seeds must give the
same numbers. It also plays constant actions (each one, or low, middle and high) and suggests limits. Every training begins
with the fast part of this check. Exit code 0: nothing is wrong; else 1."""

    env: Annotated[Positional[str], options.flag("ENV")]
    """One of ours, package.module:Factory, gymnasium:ID, gymnax:ID, brax:NAME, crax:NAME or
    playground:NAME."""
    set: EnvironmentSettings = ()
    episodes: Annotated[Count | None, options.flag("N", "128, or what a minute allows")] = None
    """Episodes of random actions, and of every constant action."""

    def __call__(self) -> int:
        from canary.checking.yardstick import full_check
        from canary.config.config import by_section, complete_constraint
        from canary.config.sources import make_environment
        from canary.constraints import Chance
        from canary.environments.protocol import default_constraint
        from canary.runs.devices import prepare_devices
        from canary.terminal.tables import print_check

        prepare_devices()
        changes = by_section(self.set)
        if changes["algo"] or changes["training"] or changes["constraint"]:
            raise CanaryError("--set takes env.NAME=VALUE here; nothing is trained.")
        environment = make_environment(self.env, changes["env"], self.cost)
        own = default_constraint(environment)
        constraint = complete_constraint(
            self.limits, own or Chance(limit=1.0, epsilon=0.05), self.env
        )
        until = math.inf if self.episodes else time.monotonic() + SECONDS
        with counting_bar("checking", quiet=self.quiet) as show:

            def progress(done: int, total: int, what: str) -> bool:
                show(done, total, what)
                return time.monotonic() < until

            report = full_check(
                environment,
                constraint=None if own is None and self.limit is None else constraint,
                episodes=self.episodes or EPISODES,
                progress=progress,
            )
        self.show(report, print_check)
        return 0 if report["ok"] else 1


@dataclass(frozen=True, kw_only=True)
class Frontier(options.Output):
    """Compute the exact best return under each kind of constraint, and compare trained runs."""

    EXAMPLES: ClassVar[str] = """
  canary frontier                                    IcyLake, the paper's limit and epsilon
  canary frontier --limit 15 --epsilon 0.1 --set env.map=8x8
  canary frontier --run latest --out frontier        with the exact values of a run's policies

Uses dynamic programming over (time, state, spent cost), so the environment must be finite. Shows VaR,
CVaR and Cantelli's bound over epsilon, and the bound on the shaped cost over the dead zone. --out
gets the figure and the report (JSON)."""

    env: Annotated[str | None, options.flag("NAME", "that of the first --run, else IcyLake")] = None
    """Environment with finite_tables(): one of ours, or package.module:Factory."""
    limit: Annotated[float | None, options.flag("COST", "the paper's: 5.5 on IcyLake")] = None
    """Cost limit."""
    epsilon: Annotated[float | None, options.flag("PROBABILITY", "the paper's: 0.02")] = None
    """Largest allowed probability of a violation."""
    set: EnvironmentSettings = ()
    run: Annotated[options.Repeated, options.flag("RUN")] = ()
    """Also show the policies of a run: its path, its name below --runs, or latest. Repeatable."""
    trust: options.Trust = False
    runs: options.RunsFolder = "runs"
    out: Annotated[str | None, options.flag("DIR")] = None
    """Directory for the figure and the report."""

    def __call__(self) -> int:
        from canary.config.config import make_config
        from canary.constraints import one_cost
        from canary.exact.run import frontier_report
        from canary.runs.environment import open_config
        from canary.terminal.tables import print_frontier

        asked = {"limit": self.limit, "epsilon": self.epsilon}
        runs = [options.opened(name, self.runs, trust=self.trust) for name in self.run]
        if runs and (self.env, self.set, self.limit, self.epsilon) == (None, (), None, None):
            config = open_config(runs[0])
        else:
            config = make_config(self.env or "IcyLake", constraint=asked, overrides=self.set)
        constraint = one_cost(config.constraint, "A frontier")
        with counting_bar("solving", quiet=self.quiet) as show:
            result = frontier_report(
                config.environment, constraint.limit, constraint.share, runs=runs, progress=show
            )
        paths: dict[str, Any] = {}
        if self.out:
            from canary.exact.figure import save_frontier  # needs matplotlib

            paths = save_frontier(result, Path(self.out))
        self.show(result, print_frontier, **paths)
        return 0
