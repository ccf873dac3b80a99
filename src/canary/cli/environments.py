"""`canary check-env` and `canary frontier`: about an environment, without training."""

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

EPISODES, SECONDS = 128, 45.0  # of each policy, and for all of them, by default
EnvironmentSettings = Annotated[
    options.Repeated,
    options.flag("env.NAME=VALUE", about="Change a setting of the environment. Repeatable."),
]


@dataclass(frozen=True, kw_only=True)
class CheckEnv(options.Limits):
    """Check an environment (shapes, types, randomness, ends, costs) and suggest limits."""

    EXAMPLES: ClassVar[str] = """
  canary check-env shop:Shop                         your own environment, in shop.py
  canary check-env shop:Shop --set env.price=2 --limit 6 --epsilon 0.05
  canary check-env shop:Shop --constraint mean --limit 3
  canary check-env gymnasium:Pendulum-v1 --cost shop:speed
  canary check-env gymnasium:shop:Tank --set env.horizon=200     your own Gymnasium class, which has no spec
  canary check-env IcyLake --json -

The check traces the environment and plays random episodes, their first steps twice: the same seeds must give the same
numbers. It also plays constant actions (each one, or low, middle and high) and suggests limits. Every training begins with
the fast part of this check. Exit code 0 if nothing is wrong, else 1."""

    env: Annotated[Positional[str], options.flag("ENV")]
    """One of ours, package.module:Factory, gymnasium:ID, gymnax:ID, brax:NAME, crax:NAME or
    playground:NAME."""
    set: EnvironmentSettings = ()
    episodes: Annotated[Count | None, options.flag("N", "128, or what a minute allows")] = None
    """Episodes of random actions, and of every constant action."""

    def __call__(self) -> int:
        from canary.checking.yardstick import full_check
        from canary.config.config import by_section, complete
        from canary.config.sources import make_environment
        from canary.constraints import Chance
        from canary.environments.protocol import close, default_constraint
        from canary.runs.devices import prepare_devices
        from canary.terminal.tables import print_check

        prepare_devices()
        changes = by_section(self.set)
        if changes["algo"] or changes["training"] or changes["constraint"]:
            raise CanaryError("--set takes env.NAME=VALUE here; nothing is trained.")
        environment = make_environment(self.env, changes["env"], self.cost)
        own = default_constraint(environment)
        constraint = complete(self.limits, own or Chance(limit=1.0, epsilon=0.05), self.env)
        until = math.inf if self.episodes else time.monotonic() + SECONDS
        try:
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
        finally:
            close(environment)
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
    """Environment with finite_tables(): one of ours or package.module:Factory."""
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
