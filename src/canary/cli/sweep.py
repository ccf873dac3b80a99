"""`canary sweep`."""

import re
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from tyro.conf import UseAppendAction

from canary.cli.common import Switch, flag, parse_seeds, whole
from canary.cli.reproduce import print_study
from canary.errors import CanaryError
from canary.studies.catalogue import ALL_STUDIES


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """Train every combination of settings on the same seeds, and compare them."""

    EXAMPLES: ClassVar[str] = """
  canary sweep --set algo.dead_zone=0.5,0.7 --limit 3.5,5.5          four combinations on four seeds
  canary sweep --set "algo.hidden=[64,64],[32,32]" --seeds 2           a list is written in brackets
  canary sweep --algo cpo --set algo.damping=0.1,1 --engine ray        over the nodes of a Ray cluster

What is finished is not trained again. After Ctrl-C the same command continues. docs/clusters.md is about Ray and Slurm."""

    env: Annotated[str, flag("NAME", "IcyLake")] = "IcyLake"
    """Environment."""
    algo: Annotated[str, flag("NAME", "canary")] = "canary"
    """Algorithm."""
    set: Annotated[tuple[str, ...], UseAppendAction, flag("SECTION.NAME=VALUE,VALUE")] = ()
    """Values of one setting. Repeatable: all combinations are trained."""
    limit: Annotated[str | None, flag("COST,COST")] = None
    """Values of the limit."""
    epsilon: Annotated[str | None, flag("PROBABILITY,PROBABILITY")] = None
    """Values of epsilon."""
    seeds: Annotated[str, flag("N|LIST", "4")] = "4"
    """How many seeds, or which."""
    steps: Annotated[str | None, flag("N", "the preset's")] = None
    """Environment steps per seed."""
    preset: Annotated[str, flag("NAME", "fast")] = "fast"
    """Settings to start from."""
    name: Annotated[str | None, flag("NAME", "sweep-ENV-ALGO")] = None
    """Name of the sweep: its folder below --runs and --results."""
    engine: Annotated[Literal["local", "ray"], flag("local|ray", "local")] = "local"
    """Train on this machine or over a Ray cluster."""
    runs: Annotated[str, flag("DIR", "runs")] = "runs"
    """Directory for the runs."""
    results: Annotated[str, flag("DIR", "results")] = "results"
    """Directory for stored results, table and figure."""
    quiet: Switch = False
    """Show no progress; print only the paths of what was written."""


def sweep(options: Sweep) -> int:
    from canary.studies.engines import engine_named
    from canary.studies.runner import Places, Request, reproduce
    from canary.studies.sweeping import sweep_study, swept

    name = _name(options)
    constraint = {"constraint.limit": options.limit, "constraint.epsilon": options.epsilon}
    given = [f"{path}={values}" for path, values in constraint.items() if values is not None]
    seeds = parse_seeds(options.seeds)
    chosen = tuple(range(seeds)) if isinstance(seeds, int) else seeds
    axes = swept([*options.set, *given])
    study = sweep_study(options.env, options.algo, options.preset, axes, chosen, _command(options))
    paths = reproduce(
        name, study,
        Places(runs=Path(options.runs), results=Path(options.results)),
        Request(steps=None if options.steps is None else whole("--steps", options.steps)),
        engine=engine_named(options.engine, options.quiet), quiet=options.quiet,
    )  # fmt: skip
    print_study(paths, options.quiet)
    return 0


def _name(options: Sweep) -> str:
    """The name of the sweep's folders, which must not be those of a study."""
    if options.name is None:
        return re.sub(r"[^A-Za-z0-9_.+-]+", "-", f"sweep-{options.env}-{options.algo}")
    if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,99}", options.name):
        raise CanaryError(
            "A sweep's name has at most 100 letters, digits and _ . + -, and begins with a letter, "
            f"a digit or _; {options.name!r:.60} does not."
        )
    if options.name in ALL_STUDIES:
        raise CanaryError(f"{options.name} is the name of a study; choose another --name.")
    return options.name


def _command(options: Sweep) -> str:
    """The command without the places where it trains and stores."""
    given = ["canary", "sweep"]
    for name in ("env", "algo", "limit", "epsilon", "seeds", "steps", "preset", "name"):
        value = getattr(options, name)
        if value != getattr(Sweep, name):
            given += [f"--{name}", value]
    for setting in options.set:
        given += ["--set", setting]
    return shlex.join(given)
