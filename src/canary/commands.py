"""The commands: for each, its options as a dataclass whose texts are its help, and the function that does it.

Options arrive as texts and are judged where they are used, so that a mistake ends in the same sentence here
and in Python. Heavy modules are imported inside the functions: help and lists answer at once.
"""

import re
import sys
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, ClassVar

from tyro.conf import Positional, UseAppendAction, arg

from canary.errors import CanaryError
from canary.experiments.names import TOTAL_STEPS
from canary.output import check_json, console_for, emit_json

MOST_SEEDS = 10_000
NOTE = "Second half of training. These are episodes of a changing policy: a description, not a guarantee."

Json = Annotated[str | None, arg(metavar="FILE|-", help_behavior_hint="")]
Out = Annotated[str, arg(metavar="DIR", help_behavior_hint="(default: runs)")]


def flag(metavar: str, default: str = "") -> Any:
    return arg(metavar=metavar, help_behavior_hint=f"(default: {default})" if default else "")


@dataclass(frozen=True, kw_only=True)
class Train:
    """Train a policy under P(episode cost > limit) <= epsilon, several seeds side by side."""

    EXAMPLES: ClassVar[str] = """
  canary train                                       Canary on IcyLake, 4 seeds
  canary train --limit 4 --epsilon 0.01 --seeds 8    another constraint, more seeds
  canary train --set algo.target_kl=0.02             another setting of the algorithm
  canary train --set env.map=8x8                     another lake
  canary train --resume latest                       go on after Ctrl-C, which saves and stops
  canary train --quiet --json - | jq .return_mean    for scripts

Everything goes into a new directory below --out: configuration, metrics, every episode, checkpoints and
the summary. `canary list` shows what --env, --algo and --preset can be."""

    env: Annotated[str | None, flag("NAME", "IcyLake")] = None
    """Environment to train on."""
    algo: Annotated[str | None, flag("NAME", "canary")] = None
    """Algorithm to train with."""
    limit: Annotated[str | None, flag("COST", "the paper's: 5.5 on IcyLake")] = None
    """Cost limit: an episode whose cost is above it is a violation."""
    epsilon: Annotated[str | None, flag("PROBABILITY", "the paper's: 0.02")] = None
    """Largest allowed probability of a violation."""
    seeds: Annotated[str | None, flag("N|LIST", "4")] = None
    """How many seeds (4 means 0 to 3), or which: 3,5,7 or 0-9 or 7-7."""
    total_steps: Annotated[str | None, flag("STEPS", str(TOTAL_STEPS))] = None
    """Environment steps per seed."""
    preset: Annotated[str | None, flag("NAME", "fast")] = None
    """Settings to start from: fast, or paper for the paper's exactly."""
    set: Annotated[tuple[str, ...], UseAppendAction, flag("SECTION.NAME=VALUE")] = ()
    """Change one setting; sections are algo, env, training and constraint. Repeatable."""
    out: Out = "runs"
    """Directory that holds the runs."""
    json: Json = None
    """Write the summary as JSON to a file, or to standard output (-) and nothing else there."""
    resume: Annotated[str | None, flag("RUN")] = None
    """Go on with a stopped run: its path, its name below --out, or latest."""
    quiet: Annotated[bool, arg(help_behavior_hint="")] = False
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
            run = api.train(**_choices(options), out=options.out, quiet=options.quiet)
    except api.TrainingInterrupted as stop:
        run, status = stop.run, 130
    summary = run.summary()
    if not options.quiet:
        from canary.experiments.summary_table import print_summary

        names = {
            "run": "",
            "episodes": "episodes.parquet",
            "metrics": "metrics.parquet",
            "summary": "summary.json",
            "figure": "training.png",
        }
        paths = {
            label: run.directory / name for label, name in names.items() if (run.directory / name).exists()
        }
        print_summary(console, summary | {"note": NOTE, "paths": paths})
    elif options.json != "-":
        print(run.directory)
    emit_json(options.json, summary)
    if status == 130:
        print(f"Interrupted and saved; go on with: canary train --resume {run.directory}", file=sys.stderr)
    return status


def _choices(options: Train) -> dict[str, Any]:
    """The arguments of `canary.train`; what was not said keeps its default there."""
    said = {"env": options.env, "algorithm": options.algo, "preset": options.preset}
    settings = {
        "constraint.limit": options.limit,
        "constraint.epsilon": options.epsilon,
        "training.total_steps": options.total_steps,
    }
    overrides = (*options.set, *(f"{name}={text}" for name, text in settings.items() if text is not None))
    choices: dict[str, Any] = {name: text for name, text in said.items() if text is not None}
    if options.seeds is not None:
        choices["seeds"] = parse_seeds(options.seeds)
    return choices | {"overrides": overrides}


def _resume(options: Train, console: Any) -> Any:
    from canary import api

    keeps = {"out", "json", "resume", "quiet"}
    for field in fields(options):
        if field.name not in keeps and getattr(options, field.name) != field.default:
            name = field.name.replace("_", "-")
            raise CanaryError(f"--resume goes on with the run's own settings; leave out --{name}.")
    run = api.load(options.resume or "", out=options.out)
    if run.summary()["status"] == "finished":
        if not options.quiet:
            console.print(
                f"{run.directory} is finished already; nothing was trained.", soft_wrap=True, highlight=False
            )
        return run
    return run.resume(quiet=options.quiet)


def parse_seeds(text: str) -> int | tuple[int, ...]:
    """`4` is a number of seeds; `3,5,7`, `0-9` and `0-3,7` name them."""
    if re.fullmatch(r"\d+", text) and int(text) <= MOST_SEEDS:
        return int(text)
    seeds: list[int] = []
    for part in text.rstrip(",").split(","):
        match = re.fullmatch(r"\s*(\d+)(?:-(\d+))?\s*", part)
        if match is None or text.isdecimal():
            raise CanaryError(
                f"--seeds takes a number up to {MOST_SEEDS} or a list such as 3,5,7 or 0-9, not {text!r}."
            )
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first or last - first >= MOST_SEEDS:
            raise CanaryError(
                f"--seeds {part} is no range of up to {MOST_SEEDS} seeds; write 0-9, for example."
            )
        seeds.extend(range(first, last + 1))
    return tuple(seeds)


@dataclass(frozen=True, kw_only=True)
class Evaluate:
    """Play fresh episodes with the frozen policies of a run; count how often the cost exceeds the limit."""

    EXAMPLES: ClassVar[str] = """
  canary evaluate                                    the newest run, 1000 episodes per seed
  canary evaluate runs/NAME --episodes 10000         a certain run, more episodes
  canary evaluate latest --deterministic --seeds 0-3 --json -

The newest intact checkpoint is used, and every episode is played from its start to its end."""

    run: Annotated[Positional[str], arg(metavar="RUN", help_behavior_hint="(default: latest)")] = "latest"
    """The run: its path, its name below --out, or latest."""
    episodes: Annotated[str, flag("N", "1000")] = "1000"
    """Episodes per seed."""
    deterministic: Annotated[bool, arg(help_behavior_hint="")] = False
    """Take the most likely action instead of sampling, as training does."""
    seeds: Annotated[str | None, flag("N|LIST", "all")] = None
    """Which seeds of the run: the first N, or a list such as 3,5,7 or 0-9."""
    seed: Annotated[str, flag("N", "0")] = "0"
    """Seed of the evaluation itself; another one gives other episodes."""
    out: Out = "runs"
    """Directory that holds the runs."""
    json: Json = None
    """Write the result as JSON to a file, or to standard output (-) and nothing else there."""
    quiet: Annotated[bool, arg(help_behavior_hint="")] = False
    """Show no progress and no table."""


def evaluate(options: Evaluate) -> int:
    check_json(options.json)
    from canary import api
    from canary.experiments.progress import evaluation_bar
    from canary.experiments.summary_table import print_summary

    episodes, seed = _whole("--episodes", options.episodes), _whole("--seed", options.seed)
    run = api.load(options.run, out=options.out)
    seeds = run.config.training.seeds
    if options.seeds is not None:
        chosen = parse_seeds(options.seeds)
        seeds = seeds[:chosen] if isinstance(chosen, int) else chosen
    with evaluation_bar(len(seeds) * episodes, quiet=options.quiet) as report:
        summary = api.evaluate(
            run,
            episodes,
            seeds=seeds,
            deterministic=options.deterministic,
            evaluation_seed=seed,
            report=report,
        )
    if not options.quiet:
        note = f"{episodes:,} fresh episodes per seed of the policies after update {summary['updates']:,}."
        print_summary(console_for(options.json), summary | {"note": note})
    emit_json(options.json, summary)
    return 0


def _whole(name: str, text: str) -> int:
    if not re.fullmatch(r"\d{1,12}", text):
        raise CanaryError(f"{name} takes a whole number, not {text!r}.")
    return int(text)


@dataclass(frozen=True, kw_only=True)
class Bench:
    """Measure training speed against a plain reference, as ratios in one run on this machine."""

    EXAMPLES: ClassVar[str] = """
  canary bench                                       about ten minutes on two cores
  canary bench --updates 10 --many-seeds 0 --json speed.json

The benchmarks come with a source checkout (benchmarks/); they are not part of an installed package."""

    seeds: Annotated[str, flag("N", "4")] = "4"
    """Seeds trained side by side."""
    many_seeds: Annotated[str, flag("N", "30")] = "30"
    """Seeds for the comparison of the cost per seed; 0 leaves it out."""
    updates: Annotated[str, flag("N", "30")] = "30"
    """Updates that are timed."""
    json: Json = None
    """Write the measurements as JSON to a file, or to standard output (-) and nothing else there."""


def bench(options: Bench) -> int:
    check_json(options.json)
    checkout = Path(__file__).parents[2]
    if not (checkout / "benchmarks" / "training_speed.py").exists():
        raise CanaryError("canary bench needs a source checkout with its benchmarks/ directory; there is none here.")
    sys.path.insert(0, str(checkout))
    from benchmarks.training_speed import run

    console = console_for(options.json)
    counts = (_whole(f"--{name.replace('_', '-')}", getattr(options, name)) for name in ("seeds", "many_seeds", "updates"))
    seeds, many_seeds, updates = counts
    if min(seeds, updates) < 1:
        raise CanaryError("canary bench needs at least one seed and one update.")
    emit_json(options.json, run(seeds, many_seeds, updates, show=lambda line: console.print(line, highlight=False)))
    return 0


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
