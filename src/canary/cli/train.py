"""`canary train`."""

import sys
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, ClassVar

from tyro.conf import UseAppendAction, arg

from canary.cli.common import (
    Json,
    RunsFolder,
    Switch,
    flag,
    opened,
    parse_seeds,
    said_constraint,
    whole,
)
from canary.errors import CanaryError
from canary.terminal.console import check_json, console_for, emit_json

NOTE = "Second half of training. These are episodes of a changing policy: a description, not a guarantee."


@dataclass(frozen=True, kw_only=True)
class Train:
    """Train a policy under a limit on the episode cost, such as P(cost > limit) <= epsilon; several
    seeds side by side."""

    EXAMPLES: ClassVar[str] = """
  canary train                                       Canary on IcyLake, 4 seeds
  canary train --limit 4 --epsilon 0.01 --seeds 8    another limit, more seeds
  canary train --constraint mean --limit 3 --algo cpo          a limit on the mean cost
  canary train --constraint cvar --limit 5 --epsilon 0.05 --algo ppo-lagrangian
  canary train --env examples.courier:Courier --constraint chance,mean --limit 2.65,30 --epsilon 0.05      two costs
  canary train --set algo.dead_zone=0.6             another setting of the algorithm
  canary train --set env.map=8x8                     another lake
  canary train --env shop:Shop --set env.price=2 --limit 6 --epsilon 0.05     an environment of yours, in shop.py
  canary train --env gymnasium:Pendulum-v1 --cost shop:speed --limit 100 --epsilon 0.1
  canary train --name wide --tag sizes --set algo.hidden=128,128       a name to call it by; `canary list` shows what differs
  canary train --log csv --log tensorboard           logs for other tools, written into the run
  canary train --resume latest                       go on after Ctrl-C, which saves and stops
  canary train --resume latest --total-steps 600000  train longer; schedules now run over the longer plan
  canary train --from latest --limit 3 --name tight  begin with the policies of another run
  canary train --quiet --json - | jq .return_mean    for scripts

Everything goes into a new directory below --out: configuration, metrics, every episode, checkpoints and
the summary. `canary list` shows what --env, --algo and --preset can be."""

    env: Annotated[str | None, flag("NAME", "IcyLake")] = None
    """Environment to train on: one of ours, package.module:Factory, gymnasium:ID,
    gymnasium:package.module:Class, gymnax:ID,
    brax:NAME, crax:NAME or playground:NAME; the code that it names is imported."""
    cost: Annotated[str | None, flag("WHERE")] = None
    """Where the cost of another package's environment is: info:KEY, safety-gymnasium, or
    package.module:function."""
    algo: Annotated[str | None, flag("NAME", "canary")] = None
    """Algorithm to train with: one of ours, or package.module:Class of a method of yours."""
    constraint: Annotated[
        str | None, flag("chance|mean|cvar", "the environment's own, or chance")
    ] = None
    """What is limited: P(cost > limit), the mean cost, or the mean cost of the worst share epsilon
    of the episodes. With several costs, here and in the next two, a list: chance,mean."""
    limit: Annotated[str | None, flag("COST", "the environment's own")] = None
    """Cost limit: of an episode (chance), of the mean (mean), or of the mean of the worst episodes
    (cvar)."""
    epsilon: Annotated[str | None, flag("PROBABILITY", "the environment's own")] = None
    """Largest allowed probability of a violation (chance), or the share of episodes that count as
    the worst (cvar)."""
    seeds: Annotated[str | None, flag("N|LIST", "4, or those of --from")] = None
    """How many seeds (4 means 0 to 3), or which: 3,5,7 or 0-9 or 7-7."""
    total_steps: Annotated[str | None, flag("STEPS", "by environment")] = None
    """Environment steps per seed. With --resume: a longer plan than the run's; schedules then run
    over that."""
    name: Annotated[str | None, flag("NAME", "environment, algorithm and time")] = None
    """What the run is called: its directory below --out."""
    tag: Annotated[tuple[str, ...], UseAppendAction, flag("TAG")] = ()
    """A word to find the run by, in `canary list`. Repeatable."""
    log: Annotated[tuple[str, ...], UseAppendAction, flag("csv|tensorboard|wandb")] = ()
    """Write every update for another tool, into the run. Repeatable. tensorboard and wandb are
    extras of canary-rl."""
    preset: Annotated[str | None, flag("NAME", "fast")] = None
    """Settings to start from: fast, or paper for the paper's equations, hyper-parameters and
    steps."""
    set: Annotated[tuple[str, ...], UseAppendAction, flag("SECTION.NAME=VALUE")] = ()
    """Change one setting; sections are algo, env, training and constraint. Repeatable."""
    trust: Switch = False
    """With --resume: import the code that the run was trained on, if it is not canary's own; asked
    once for each run."""
    out: RunsFolder = "runs"
    json: Json = None
    """Write the summary as JSON to a file, or to standard output (-) and nothing else there."""
    start: Annotated[str | None, arg(name="from", metavar="RUN", help_behavior_hint="")] = None
    """Begin with what this run has learnt: its policies, normalisers and critics, seed by seed. The
    limit, settings and environment may be others."""
    seed: Annotated[str | None, flag("N")] = None
    """With --from: the seed of that run which all seeds begin with."""
    resume: Annotated[str | None, flag("RUN")] = None
    """Go on with a stopped run: its path, its name below --out, or latest."""
    no_final_check: Switch = False
    """Do not play fresh episodes with the final policies at the end."""
    quiet: Switch = False
    """Show no progress and no table; print only the run's directory."""


def train(options: Train) -> int:
    check_json(options.json)
    console = console_for(options.json)
    from canary import api

    status = 0
    try:
        if options.resume is not None:
            run = _resume(options, console)
        else:
            labels = {"name": options.name, "tags": options.tag, "log": options.log}
            run = api.train(
                **_choices(options), **labels, out=options.out, quiet=options.quiet,
                final_check=not options.no_final_check, start=_start(options),
            )  # fmt: skip
    except api.TrainingInterrupted as stop:
        run, status = stop.run, 130
    summary = run.summary()
    if not options.quiet:
        from canary.terminal.tables import print_summary

        names = {
            "run": "",
            "episodes": "episodes.parquet",
            "metrics": "metrics.parquet",
            "summary": "summary.json",
            "figure": "training.png",
        }
        paths = {
            label: run.directory / name
            for label, name in names.items()
            if (run.directory / name).exists()
        }
        began = (summary["start"] or {}).get("run")
        paths |= {"began with": began} if began else {}
        print_summary(console, summary | {"note": NOTE, "paths": paths})
    elif options.json != "-":
        print(run.directory)
    emit_json(options.json, summary)
    if status == 130:
        print(
            f"Interrupted and saved; go on with: canary train --resume {run.directory}",
            file=sys.stderr,
        )
    return status


def _choices(options: Train) -> dict[str, Any]:
    """The arguments of `canary.train`; what was not said keeps its default there."""
    said = {
        "env": options.env,
        "algorithm": options.algo,
        "preset": options.preset,
        "cost": options.cost,
    }
    steps = options.total_steps
    overrides = (*options.set, *(() if steps is None else (f"training.total_steps={steps}",)))
    choices: dict[str, Any] = {name: text for name, text in said.items() if text is not None}
    constraint = said_constraint(options.constraint, options.limit, options.epsilon)
    if any(part is not None for part in constraint.values()):
        choices["constraint"] = constraint
    if options.seeds is not None:
        choices["seeds"] = parse_seeds(options.seeds)
    return choices | {"overrides": overrides}


def _start(options: Train) -> Any:
    """What --from and --seed say."""
    if options.start is None:
        if options.seed is not None:
            raise CanaryError("--seed belongs to --from RUN; --seeds says which seeds are trained.")
        return None
    from canary.runs.directory import find_run
    from canary.runs.warm_start import start_from_run

    seed = whole("--seed", options.seed)
    return start_from_run(find_run(options.start, Path(options.out)), seed)


def _resume(options: Train, console: Any) -> Any:
    from canary import api
    from canary.runs.environment import open_config

    keeps = {"out", "json", "resume", "quiet", "trust", "total_steps", "log", "no_final_check"}
    steps = whole("--total-steps", options.total_steps)
    for field in fields(options):
        if field.name not in keeps and getattr(options, field.name) != field.default:
            name = {"start": "from"}.get(field.name, field.name.replace("_", "-"))
            raise CanaryError(f"--resume goes on with the run's own settings; leave out --{name}.")
    place = opened(options.resume or "", options.out, trust=options.trust)
    run = api.Run(place, open_config(place))
    if run.summary()["status"] == "finished" and (
        steps is None or steps <= run.config.training.total_steps
    ):
        if not options.quiet:
            console.say(f"{run.directory} is finished already; nothing was trained.")
        complete = (run.directory / "summary.json").exists()
        # A kill may have left it without its summary
        return run if complete else run.resume(quiet=True)
    return run.resume(
        total_steps=steps, log=options.log, quiet=options.quiet,
        final_check=not options.no_final_check,
    )  # fmt: skip
