"""`canary train`."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from tyro.conf import arg

from canary.cli import options
from canary.terminal.console import console_for
from canary.values import Seeds, Steps, Whole

if TYPE_CHECKING:
    from canary.api import Run

NOTE = "Second half of training. These are episodes of a changing policy: a description, not a guarantee."
FILES = {
    "run": "",
    "episodes": "episodes.parquet",
    "metrics": "metrics.parquet",
    "summary": "summary.json",
    "figure": "training.png",
}
WITH_RESUME = {"resume", "total_steps", "log", "no_final_check", "trust", "out", "json", "quiet"}


@dataclass(frozen=True, kw_only=True)
class Train(options.Limits):
    """Train a policy under a limit on the episode cost, such as P(cost > limit) <= epsilon."""

    EXAMPLES: ClassVar[str] = """
  canary train                                       Canary on IcyLake, 4 seeds
  canary train --limit 4 --epsilon 0.01 --seeds 8    another limit, more seeds
  canary train --constraint mean --limit 3 --algo cpo          a limit on the mean cost
  canary train --constraint cvar --limit 5 --epsilon 0.05 --algo ppo-lagrangian
  canary train --env examples.courier:Courier --constraint chance,mean --limit 2.65,30 --epsilon 0.05      two costs
  canary train --set algo.dead_zone=0.6              a setting of the algorithm
  canary train --set env.map=8x8                     another lake
  canary train --env shop:Shop --set env.price=2 --limit 6 --epsilon 0.05     your own environment, in shop.py
  canary train --env gymnasium:Pendulum-v1 --cost shop:speed --limit 100 --epsilon 0.1
  canary train --name wide --set algo.hidden=128,128       a name; `canary list` shows what differs
  canary train --log csv --log tensorboard           logs for other tools, written into the run
  canary train --resume latest                       continue after Ctrl-C, which saves and stops
  canary train --resume latest --total-steps 600000  train longer; schedules follow the new number
  canary train --from latest --limit 3 --name tight  start from the policies of another run
  canary train --quiet --json - | jq .return_mean    for scripts

A new directory below --out gets the configuration, metrics, every episode, checkpoints and the summary.
`canary list` shows the values of --env, --algo and --preset."""

    env: Annotated[str, options.flag("NAME", "IcyLake")] = "IcyLake"
    """Environment: one of ours, package.module:Factory, gymnasium:ID,
    gymnasium:package.module:Class, gymnax:ID, brax:NAME, crax:NAME or playground:NAME; the code
    that it names is imported."""
    algo: Annotated[str, options.flag("NAME", "canary")] = "canary"
    """Algorithm: one of ours, or package.module:Class of your own method."""
    seeds: Annotated[Seeds | None, options.flag("N|LIST", "4, or those of --from")] = None
    """Number of seeds (4 means 0 to 3), or a list: 3,5,7 or 0-9 or 7-7."""
    total_steps: Annotated[Steps | None, options.flag("STEPS", "by environment")] = None
    """Environment steps per seed. With --resume: the new, larger number; schedules follow it."""
    name: Annotated[str | None, options.flag("NAME", "environment, algorithm and time")] = None
    """Name of the run and of its directory below --out."""
    log: Annotated[options.Repeated, options.flag("csv|tensorboard|wandb")] = ()
    """Write a log of every update for another tool into the run. Repeatable. tensorboard and wandb
    are extras of canary-rl."""
    preset: Annotated[str, options.flag("NAME", "fast")] = "fast"
    """Settings to start from: fast; paper (the paper's equations, hyper-parameters and steps);
    authors (paper with details of the authors' code)."""
    set: Annotated[options.Repeated, options.flag("SECTION.NAME=VALUE")] = ()
    """Change one setting; sections are algo, env, training and constraint. Repeatable."""
    trust: options.Trust = False
    out: options.RunsFolder = "runs"
    start: Annotated[str | None, arg(name="from", metavar="RUN", help_behavior_hint="")] = None
    """Start from the policies, normalisers and critics of this run, seed by seed. Limit, settings
    and environment may differ."""
    seed: Annotated[Whole | None, options.flag("N")] = None
    """With --from: start all seeds from this seed of that run."""
    resume: Annotated[str | None, options.flag("RUN")] = None
    """Continue a stopped run: its path, its name below --out, or latest."""
    no_final_check: options.Switch = False
    """Skip the evaluation of the final policies on fresh episodes."""

    def __call__(self) -> int:
        from canary import api
        from canary.terminal.tables import print_summary

        status = 0
        try:
            if self.resume is not None:
                run = self._resume(self.resume)
            else:
                how = options.arguments(self, api.train)
                how |= {"algorithm": self.algo, "constraint": self.limits, "start": self._start()}
                how |= {"overrides": self.set}
                run = api.train(**how, final_check=not self.no_final_check)
        except api.TrainingInterrupted as stop:
            run, status = stop.run, 130
        summary = run.summary()
        places = {label: run.directory / name for label, name in FILES.items()}
        paths: dict[str, Any] = {label: at for label, at in places.items() if at.exists()}
        if summary["start"] and summary["start"].get("run"):
            paths["began with"] = summary["start"]["run"]
        if self.quiet and self.json != "-":
            print(run.directory)
        shown = summary | {"note": NOTE, "paths": paths}
        self.show(summary, lambda console, _: print_summary(console, shown))
        if status:
            text = f"Interrupted and saved; continue with: canary train --resume {run.directory}"
            print(text, file=sys.stderr)
        return status

    def _start(self) -> Any:
        if self.start is None:
            options.refuse(self, ("seed",), "it works only with --from RUN; --seeds are trained")
            return None
        from canary.runs.directory import find_run
        from canary.runs.warm_start import start_from_run

        return start_from_run(find_run(self.start, Path(self.out)), self.seed)

    def _resume(self, name: str) -> "Run":
        from canary import api

        options.refuse(
            self, options.given(self).keys() - WITH_RESUME, "--resume keeps the settings of the run"
        )
        run = api.load(options.opened(name, self.out, trust=self.trust))
        is_over = run.summary()["status"] == "finished" and self.total_steps is None
        if is_over and not self.quiet:
            text = f"{run.directory} is finished already; there is nothing to train."
            console_for(self.json).say(text)
        how = options.arguments(self, api.Run.resume)
        return run.resume(**how, final_check=not self.no_final_check)
