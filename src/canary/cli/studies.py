"""`canary reproduce` and `canary sweep`: many runs, compared."""

import re
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from tyro.conf import Positional

from canary.cli import options
from canary.errors import CanaryError, nearest
from canary.studies.catalogue import ALL_STUDIES, Row, Study
from canary.values import Seeds, Steps

if TYPE_CHECKING:
    from canary.studies.runner import Request

ABOUT_TRAINING = ("only", "scale", "seeds", "steps", "preset", "engine")
NAME = r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,99}"

Axes = dict[str, list[str]]
"""The settings of a sweep, each with its values."""


@dataclass(frozen=True, kw_only=True)
class Reproduce:
    """Train the missing seeds of a study and write its table and figure."""

    EXAMPLES: ClassVar[str] = """
  canary reproduce                                   list the studies
  canary reproduce table1                            the paper's table, scaled to a CPU: five methods, three environments
  canary reproduce table1 --only icy-lake-cpo        one row; the table shows all finished rows
  canary reproduce table1 --scale paper              the paper's equations, steps and 30 seeds
  canary reproduce epsilon-sweep --seeds 20          more seeds; finished ones are kept
  canary reproduce table1 --rebuild                  tables and figures from stored results, without training
  canary reproduce --rebuild                         the same for every stored study

Finished seeds are not trained again, even if another study trained them. After Ctrl-C the same command continues. Results
with other settings are kept beside the new ones."""

    study: Annotated[Positional[str], options.flag("STUDY")] = ""
    """Name of the study. Without it all studies are listed."""
    only: Annotated[options.Repeated, options.flag("ROW")] = ()
    """Train only this row. Repeatable."""
    rebuild: options.Switch = False
    """Train nothing: write tables and figures from stored results."""
    scale: Annotated[Literal["cpu", "paper"], options.flag("cpu|paper", "cpu")] = "cpu"
    """`cpu`: the study's seeds and steps. `paper`: the paper's equations, steps and 30 seeds."""
    seeds: Annotated[Seeds | None, options.flag("N|LIST")] = None
    """Number of seeds, from the row's first on, or a list (3,5,7 or 0-9)."""
    steps: Annotated[Steps | None, options.flag("N")] = None
    """Environment steps per seed."""
    preset: Annotated[str | None, options.flag("NAME")] = None
    """Preset for all rows."""
    engine: Annotated[Literal["local", "ray"], options.flag("local|ray", "local")] = "local"
    """Train on all cores of this machine, or over a Ray cluster (docs/clusters.md)."""
    runs: options.RunsFolder = "runs"
    results: options.ResultsFolder = "results"
    quiet: options.Quiet = False

    def __call__(self) -> int:
        if self.rebuild:
            options.refuse(self, ABOUT_TRAINING, "--rebuild trains nothing")
            return self._rebuild()
        if not self.study:
            options.refuse(self, ABOUT_TRAINING, "it needs a study, canary reproduce STUDY")
            for name, study in ALL_STUDIES.items():
                print(f"{name:<20}{study.title}: {_size(study)}")
            return 0
        from canary.studies.runner import Request

        study = ALL_STUDIES[_known(self.study, ALL_STUDIES)]
        if not study.rows:
            options.refuse(self, ("engine",), f"{self.study} trains nothing")
        request = Request(**options.arguments(self, Request))
        return _run_study(self, self.study, study, request)

    def _rebuild(self) -> int:
        """One study, or all that are stored. One that cannot be shown does not stop the others."""
        from canary.studies.table import save_views

        results = Path(self.results)
        stored = sorted(path.parent.name for path in results.glob("*/study.json"))
        names = [_known(self.study, {*stored, *ALL_STUDIES})] if self.study else stored
        if not names:
            raise CanaryError(f"{results} holds no study; `canary reproduce NAME` makes one.")
        problems = []
        for name in names:
            try:
                print_study(save_views(results / name), self.quiet)
            except CanaryError as error:
                problems.append(str(error))
        if problems:
            raise CanaryError(" ".join(problems))
        return 0


def _known(study: str, known: Iterable[str]) -> str:
    if study not in known:
        raise CanaryError(f"There is no study called {study!r:.60}{nearest(study, known)}")
    return study


def _run_study(
    command: "Reproduce | Sweep", name: str, study: Study, request: "Request | None" = None
) -> int:
    """Train what is missing and print the study."""
    from canary.studies.runner import Places, reproduce

    places = Places(runs=Path(command.runs), results=Path(command.results))
    paths = reproduce(name, study, places, request, engine=command.engine, quiet=command.quiet)
    print_study(paths, command.quiet)
    return 0


def print_study(paths: dict[str, Path], quiet: bool) -> None:
    """The table, and where everything is."""
    if not quiet:
        print(paths["table"].read_text())
    for label, path in paths.items():
        print(path if quiet else f"{label:<8}{path}")


def _size(study: Study) -> str:
    if study.units_of is not None:
        return f"shows {study.units_of}"
    if not study.rows:
        return "computes points of its own"
    steps = sum(len(row.seeds) * (row.steps or 0) for row in study.rows)
    return f"{len(study.rows)} rows, {steps / 1e6:g}M steps in all"


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """Train every combination of settings on the same seeds, and compare them."""

    EXAMPLES: ClassVar[str] = """
  canary sweep --set algo.dead_zone=0.5,0.7 --limit 3.5,5.5          four combinations on four seeds
  canary sweep --set "algo.hidden=[64,64],[32,32]" --seeds 2           a list is written in brackets
  canary sweep --env shop:Shop --limit 4,6 --epsilon 0.05 --total-steps 200000      your own environment
  canary sweep --algo cpo --set algo.damping=0.1,1 --engine ray        over the nodes of a Ray cluster

Finished seeds are not trained again. After Ctrl-C the same command continues. docs/clusters.md explains Ray and Slurm."""

    env: Annotated[str, options.flag("NAME", "IcyLake")] = "IcyLake"
    """Environment, as in `canary train`."""
    cost: options.Cost = None
    algo: Annotated[str, options.flag("NAME", "canary")] = "canary"
    """Algorithm."""
    set: Annotated[options.Repeated, options.flag("SECTION.NAME=VALUE,VALUE")] = ()
    """Values of one setting. Repeatable: all combinations are trained."""
    constraint: Annotated[str | None, options.flag("chance|mean|cvar", "the environment's own")] = (
        None
    )
    """What is limited."""
    limit: Annotated[str | None, options.flag("COST,COST")] = None
    """Values of the limit."""
    epsilon: Annotated[str | None, options.flag("PROBABILITY,PROBABILITY")] = None
    """Values of epsilon."""
    seeds: Annotated[Seeds, options.flag("N|LIST", "4")] = 4
    """Number of seeds, or a list."""
    total_steps: Annotated[Steps | None, options.flag("STEPS", "the preset's")] = None
    """Environment steps per seed."""
    preset: Annotated[str, options.flag("NAME", "fast")] = "fast"
    """Settings to start from."""
    name: Annotated[str | None, options.flag("NAME", "sweep-ENV-ALGO")] = None
    """Name of the sweep: its folder below --runs and --results."""
    engine: Annotated[Literal["local", "ray"], options.flag("local|ray", "local")] = "local"
    """Train on this machine or over a Ray cluster."""
    runs: options.RunsFolder = "runs"
    results: options.ResultsFolder = "results"
    quiet: options.Quiet = False

    def __call__(self) -> int:
        name = self._name()
        said = {"kind": self.constraint, "limit": self.limit, "epsilon": self.epsilon}
        limits = [f"constraint.{part}={values}" for part, values in said.items() if values]
        base = Row(
            name="",
            environment=self.env,
            cost=self.cost,
            algorithm=self.algo,
            preset=self.preset,
            seeds=range(self.seeds) if isinstance(self.seeds, int) else self.seeds,
            steps=self.total_steps,
        )
        return _run_study(
            self, name, sweep_study(base, swept([*self.set, *limits]), self._command())
        )

    def _name(self) -> str:
        """The name of the sweep's folders, which must not be those of a study."""
        name = folder_name(f"sweep-{self.env}-{self.algo}", "-") if self.name is None else self.name
        if name in ALL_STUDIES or not re.fullmatch(NAME, name):
            raise CanaryError(
                "The --name of a sweep has at most 100 letters, digits and _ . + -, begins with a "
                f"letter, a digit or _, and is not that of a study; {name!r:.60} cannot be one."
            )
        return name

    def _command(self) -> str:
        """The command without the places where it trains and stores."""
        words = ["canary", "sweep"]
        for name, value in options.given(self).items():
            if name not in ("engine", "runs", "results", "quiet"):
                values = value if name == "set" else [value]
                for each in values:
                    text = ",".join(map(str, each)) if isinstance(each, tuple) else str(each)
                    words += [options.flag_of(name), text]
        return shlex.join(words)


def folder_name(text: str, between: str) -> str:
    """The text with `between` in place of characters that a folder name should not have."""
    return re.sub(r"[^A-Za-z0-9_.+-]+", between, text)


def swept(texts: Sequence[str]) -> Axes:
    """`algo.target_kl=0.01,0.02` as a setting and its values. A list is written in brackets:
    `algo.hidden=[64,64],[32]`."""
    axes: Axes = {}
    for text in texts:
        path, _, values = map(str.strip, text.partition("="))
        parts = [part.strip() for part in re.findall(r"\[[^\]]*\]|[^,\[\]]+", values)]
        if not path or not parts:
            raise CanaryError(
                "A sweep takes section.setting=value,value, such as algo.target_kl=0.01,0.02, not "
                f"{text!r:.60}."
            )
        if path in axes or len(set(parts)) < len(parts):
            raise CanaryError(
                f"{path} or one of its values is given twice. Give all values at once; a list is "
                f"written in brackets: {path}=[{','.join(parts)}]."
            )
        axes[path] = parts
    return axes


def sweep_study(base: Row, axes: Axes, command: str | None = None) -> Study:
    """`base` with every combination of values, named by those that vary."""
    named = [path for path, values in axes.items() if len(values) > 1] or list(axes)
    rows = []
    for values in product(*axes.values()):
        settings = dict(zip(axes, values, strict=True))
        parts = [f"{path.rpartition('.')[2]}-{settings[path]}" for path in named]
        limits = [path for path in settings if path.startswith("constraint.")]
        row = replace(
            base,
            name=folder_name("--".join(parts) or "default", "_")[:120],
            about=" ".join(f"{path}={settings[path]}" for path in named),
            overrides=tuple(f"{path}={settings[path]}" for path in axes if path not in limits),
            constraint={path.removeprefix("constraint."): settings[path] for path in limits},
        )
        rows.append(row)
    if len({row.name for row in rows}) < len(rows):
        raise CanaryError("Two combinations would have the same name; sweep fewer settings.")
    title = f"{base.algorithm} on {base.environment}: {', '.join(axes) or 'default settings'}"
    return Study(title=title, rows=tuple(rows), command=command)
