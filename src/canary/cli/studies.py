"""`canary reproduce` and `canary sweep`: train and compare many runs."""

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from tyro.conf import Positional

from canary.cli import options
from canary.config.settings import canonical
from canary.errors import CanaryError
from canary.studies.catalogue import ALL_STUDIES, Row, Study
from canary.values import Seeds, Steps

if TYPE_CHECKING:
    from canary.studies.runner import Request

ABOUT_TRAINING = ("only", "scale", "seeds", "steps", "preset", "engine")
NAME = r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,99}"

Axes = dict[str, list[str]]
"""Settings of a sweep, and the values of each."""


@dataclass(frozen=True, kw_only=True)
class OfStudies:
    """Options of commands that train many runs."""

    engine: Annotated[Literal["local", "ray"], options.flag("local|ray", "local")] = "local"
    """Train on all cores of this machine, or over a Ray cluster (docs/clusters.md)."""
    runs: options.RunsFolder = "runs"
    results: options.ResultsFolder = "results"
    quiet: options.Switch = False
    """Print no progress and no table."""

    def train(self, name: str, study: Study, request: "Request | None" = None) -> int:
        """Train the missing seeds and print the study."""
        from canary.studies.runner import Places, reproduce

        places = Places(runs=Path(self.runs), results=Path(self.results))
        self.show(reproduce(name, study, places, request, engine=self.engine, quiet=self.quiet))
        return 0

    def show(self, paths: dict[str, Path]) -> None:
        """Print the table and the paths of all files."""
        if not self.quiet:
            print(paths["table"].read_text())
        for label, path in paths.items():
            print(path if self.quiet else f"{label:<8}{path}")


@dataclass(frozen=True, kw_only=True)
class Reproduce(OfStudies):
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

        name = canonical(self.study, ALL_STUDIES, "study")
        study = ALL_STUDIES[name]
        if not study.rows:
            options.refuse(self, ("engine",), f"{name} trains nothing")
        return self.train(name, study, Request(**options.arguments(self, Request)))

    def _rebuild(self) -> int:
        """Rebuild one study, or all stored ones. An error in one does not stop the others."""
        from canary.studies.table import save_views

        results = Path(self.results)
        stored = sorted(path.parent.name for path in results.glob("*/study.json"))
        known = [*stored, *ALL_STUDIES]
        names = [canonical(self.study, known, "study")] if self.study else stored
        if not names:
            raise CanaryError(f"{results} holds no study; `canary reproduce NAME` makes one.")
        problems = []
        for name in names:
            try:
                self.show(save_views(results / name))
            except CanaryError as error:
                problems.append(str(error))
        if problems:
            raise CanaryError(" ".join(problems))
        return 0


def _size(study: Study) -> str:
    if study.units_of is not None:
        return f"shows {study.units_of}"
    if not study.rows:
        return "computes points of its own"
    steps = sum(len(row.seeds) * (row.steps or 0) for row in study.rows)
    return f"{len(study.rows)} rows, {steps / 1e6:g}M steps in all"


@dataclass(frozen=True, kw_only=True)
class Sweep(OfStudies):
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

    def __call__(self) -> int:
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
        study = sweep_study(base, swept([*self.set, *limits]), self._command())
        return self.train(self._name(), study)

    def _name(self) -> str:
        """The name of the sweep's folders; names of studies are refused."""
        name = folder_name(f"sweep-{self.env}-{self.algo}", "-") if self.name is None else self.name
        if name in ALL_STUDIES or not re.fullmatch(NAME, name):
            raise CanaryError(
                f"--name {name!r:.60} must be a folder name of letters, digits and _ . + -, and not "
                "the name of a study."
            )
        return name

    def _command(self) -> str:
        """The command that repeats the sweep, without the options of `OfStudies`."""
        words = ["canary", "sweep"]
        for name, value in options.given(self).items():
            if name not in OfStudies.__dataclass_fields__:
                for each in value if name == "set" else [value]:
                    text = ",".join(map(str, each)) if isinstance(each, tuple) else str(each)
                    words += [options.flag_of(name), text]
        return shlex.join(words)


def folder_name(text: str, between: str) -> str:
    """The text with `between` for every character that a folder name should not have."""
    return re.sub(r"[^A-Za-z0-9_.+-]+", between, text)


def swept(texts: Sequence[str]) -> Axes:
    """Settings and their values from texts such as `algo.target_kl=0.01,0.02`. Lists are in
    brackets: `algo.hidden=[64,64],[32]`."""
    axes: Axes = {}
    for text in texts:
        path, _, values = map(str.strip, text.partition("="))
        parts = [part.strip() for part in re.findall(r"\[[^\]]*\]|[^,\[\]]+", values)]
        if not path or not parts or path in axes or len(set(parts)) < len(parts):
            raise CanaryError(
                "A sweep takes section.setting=value,value with each setting and value once, and "
                f"lists in brackets, such as algo.hidden=[64,64],[32,32]; not {text!r:.60}."
            )
        axes[path] = parts
    return axes


def sweep_study(base: Row, axes: Axes, command: str | None = None) -> Study:
    """`base` with every combination of values. Settings that vary make the names of rows."""
    named = [path for path, values in axes.items() if len(values) > 1] or list(axes)
    rows = []
    for values in product(*axes.values()):
        settings = dict(zip(axes, values, strict=True))
        parts = [f"{path.rpartition('.')[2]}-{settings[path]}" for path in named]
        row = replace(
            base,
            name=folder_name("--".join(parts) or "default", "_")[:120],
            about=" ".join(f"{path}={settings[path]}" for path in named),
            overrides=tuple(f"{path}={value}" for path, value in settings.items()),
        )
        rows.append(row)
    if len({row.name for row in rows}) < len(rows):
        raise CanaryError("Two combinations would have the same name; sweep fewer settings.")
    title = f"{base.algorithm} on {base.environment}: {', '.join(axes) or 'default settings'}"
    return Study(title=title, rows=tuple(rows), command=command)
