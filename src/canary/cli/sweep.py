"""`canary sweep`."""

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from tyro.conf import UseAppendAction

from canary.cli.common import Switch, flag, parse_seeds, whole
from canary.cli.reproduce import print_study
from canary.errors import CanaryError
from canary.studies.catalogue import ALL_STUDIES, Row, Study

LARGEST_SWEEP = 1000  # combinations
LIMITED = "constraint."
Axes = list[tuple[str, list[str]]]


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """Train every combination of settings on the same seeds, and compare them."""

    EXAMPLES: ClassVar[str] = """
  canary sweep --set algo.dead_zone=0.5,0.7 --limit 3.5,5.5          four combinations on four seeds
  canary sweep --set "algo.hidden=[64,64],[32,32]" --seeds 2           a list is written in brackets
  canary sweep --env shop:Shop --limit 4,6 --epsilon 0.05 --total-steps 200000      an environment of yours
  canary sweep --algo cpo --set algo.damping=0.1,1 --engine ray        over the nodes of a Ray cluster

What is finished is not trained again. After Ctrl-C the same command continues. docs/clusters.md is about Ray and Slurm."""

    env: Annotated[str, flag("NAME", "IcyLake")] = "IcyLake"
    """Environment, as in `canary train`."""
    cost: Annotated[str | None, flag("WHERE")] = None
    """Where the cost of another package's environment is, as in `canary train`."""
    algo: Annotated[str, flag("NAME", "canary")] = "canary"
    """Algorithm."""
    set: Annotated[tuple[str, ...], UseAppendAction, flag("SECTION.NAME=VALUE,VALUE")] = ()
    """Values of one setting. Repeatable: all combinations are trained."""
    constraint: Annotated[str | None, flag("chance|mean|cvar", "the environment's own")] = None
    """What is limited."""
    limit: Annotated[str | None, flag("COST,COST")] = None
    """Values of the limit."""
    epsilon: Annotated[str | None, flag("PROBABILITY,PROBABILITY")] = None
    """Values of epsilon."""
    seeds: Annotated[str, flag("N|LIST", "4")] = "4"
    """How many seeds, or which."""
    total_steps: Annotated[str | None, flag("STEPS", "the preset's")] = None
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
    from canary.studies.runner import Places, engine_named, reproduce

    name = _name(options)
    given = [
        f"constraint.{path}={values}"
        for path, values in (
            ("kind", options.constraint), ("limit", options.limit), ("epsilon", options.epsilon)
        )
        if values is not None
    ]  # fmt: skip
    seeds = parse_seeds(options.seeds)
    base = Row(
        name="", environment=options.env, cost=options.cost, algorithm=options.algo,
        preset=options.preset, seeds=tuple(range(seeds)) if isinstance(seeds, int) else seeds,
        steps=whole("--total-steps", options.total_steps),
    )  # fmt: skip
    paths = reproduce(
        name, sweep_study(base, swept([*options.set, *given]), _command(options)),
        Places(runs=Path(options.runs), results=Path(options.results)),
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
    names = ("env", "cost", "algo", "constraint", "limit", "epsilon", "seeds", "total_steps", "preset", "name")  # fmt: skip
    for name in names:
        value = getattr(options, name)
        if value != getattr(Sweep, name):
            given += [f"--{name.replace('_', '-')}", value]
    for setting in options.set:
        given += ["--set", setting]
    return shlex.join(given)


def swept(texts: Sequence[str]) -> Axes:
    """`algo.target_kl=0.01,0.02` as (setting, values). A list is written in brackets:
    `algo.hidden=[64,64],[32]`."""
    found: Axes = []
    for text in texts:
        path, equals, values = text.partition("=")
        parts = [part.strip() for part in re.findall(r"\[[^\]]*\]|[^,\[\]]+", values)]
        if not equals or not path.strip() or not parts:
            raise CanaryError(
                "A sweep takes section.setting=value,value, such as algo.target_kl=0.01,0.02, not "
                f"{text!r}."
            )
        if path.strip() in dict(found):
            raise CanaryError(f"{path} is swept twice; give all of its values at once.")
        if len(set(parts)) < len(parts):
            raise CanaryError(
                f"{path} has a value twice. A list is written in brackets: "
                f"{path}=[{','.join(parts)}]."
            )
        found.append((path.strip(), parts))
    return found


def sweep_study(base: Row, axes: Axes, command: str | None = None) -> Study:
    """`base` with every combination of values, named by those that vary."""
    combinations = list(product(*(values for _, values in axes)))
    if len(combinations) > LARGEST_SWEEP:
        raise CanaryError(
            f"The sweep has {len(combinations)} combinations; at most {LARGEST_SWEEP} are allowed."
        )
    varying = {path for path, values in axes if len(values) > 1}
    rows = []
    for combination in combinations:
        settings = {path: value for (path, _), value in zip(axes, combination, strict=True)}
        named = {path: value for path, value in settings.items() if path in varying} or dict(
            settings
        )
        parts = [f"{path.rpartition('.')[2]}-{value}" for path, value in named.items()]
        limited = {path: settings.pop(path) for path in list(settings) if path.startswith(LIMITED)}
        rows.append(
            replace(
                base,
                name=re.sub(r"[^A-Za-z0-9_.+-]+", "_", "--".join(parts) or "default")[:120],
                about=" ".join(f"{path}={value}" for path, value in named.items()),
                overrides=tuple(f"{path}={value}" for path, value in settings.items()),
                constraint={
                    path.removeprefix(LIMITED): _number(path, v) for path, v in limited.items()
                },
            )
        )
    if len({row.name for row in rows}) < len(rows):
        raise CanaryError("Two combinations would have the same name; sweep fewer settings.")
    what = ", ".join(path for path, _ in axes) or "as it is"
    title = f"{base.algorithm} on {base.environment}: {what}"
    return Study(title=title, rows=tuple(rows), command=command)


def _number(path: str, text: str) -> float | str:
    try:
        return text if path == "constraint.kind" else float(text)
    except ValueError:
        raise CanaryError(f"{path} takes numbers, not {text!r:.60}.") from None
