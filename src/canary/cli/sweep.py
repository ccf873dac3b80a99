"""`canary sweep`."""

import re
import shlex
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from tyro.conf import UseAppendAction

from canary.cli.common import Switch, flag, parse_seeds, whole
from canary.errors import CanaryError
from canary.studies.catalogue import ALL_STUDIES
from canary.terminal.study_table import print_study


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """Train every combination of some values of some settings, on the same seeds, and compare
    them."""

    EXAMPLES: ClassVar[str] = """
  canary sweep --set algo.target_kl=0.01,0.02 --limit 3.5,5.5          four combinations on four seeds
  canary sweep --set "algo.hidden=[64,64],[32,32]" --seeds 2           a list is written in brackets
  canary sweep --algo cpo --set algo.damping=0.1,1 --engine ray        over the nodes of a Ray cluster

Combinations are kept as those of a study: what is finished is not trained again, and after Ctrl-C the same command goes on.
docs/clusters.md is about Ray and Slurm."""

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
    from canary.studies.plan import Request, sweep_study, swept
    from canary.studies.run import Places, engine_named, reproduce

    name = _name(options)
    constraint = {"constraint.limit": options.limit, "constraint.epsilon": options.epsilon}
    said = [f"{path}={values}" for path, values in constraint.items() if values is not None]
    seeds = parse_seeds(options.seeds)
    chosen = tuple(range(seeds)) if isinstance(seeds, int) else seeds
    study = sweep_study(
        options.env, options.algo, options.preset, swept([*options.set, *said]), chosen
    )
    study = replace(study, command=_command(options))
    request = Request(steps=None if options.steps is None else whole("--steps", options.steps))
    paths = reproduce(
        name, study,
        Places(runs=Path(options.runs), results=Path(options.results)), request,
        engine=engine_named(options.engine, options.quiet), quiet=options.quiet,
    )  # fmt: skip
    print_study(paths, options.quiet)
    return 0


def _name(options: Sweep) -> str:
    """The name of the sweep's folders, which may not be those of a study."""
    if options.name is None:
        return re.sub(r"[^A-Za-z0-9_.+-]+", "-", f"sweep-{options.env}-{options.algo}")
    if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,99}", options.name):
        raise CanaryError(
            "A sweep's name has letters, digits and _ . + - in it, 100 at most, and begins with "
            f"none of the last three; {options.name!r:.60} is none."
        )
    if options.name in ALL_STUDIES:
        raise CanaryError(
            f"{options.name} is a study of its own (`canary reproduce {options.name}`), which a "
            "sweep would replace; choose another --name."
        )
    return options.name


def _command(options: Sweep) -> str:
    """What was asked for as a command; where it is trained and kept is not part of it."""
    said = ["canary", "sweep"]
    for name in ("env", "algo", "limit", "epsilon", "seeds", "steps", "preset", "name"):
        value = getattr(options, name)
        if value != getattr(Sweep, name):
            said += [f"--{name}", value]
    for setting in options.set:
        said += ["--set", setting]
    return shlex.join(said)
