"""`canary reproduce`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from tyro.conf import Positional, UseAppendAction

from canary.cli.common import Switch, flag, parse_seeds, whole
from canary.errors import CanaryError, nearest
from canary.studies.catalogue import ALL_STUDIES, Study


@dataclass(frozen=True, kw_only=True)
class Reproduce:
    """Train what is missing of a study and write its table and figure, or only write them."""

    EXAMPLES: ClassVar[str] = """
  canary reproduce                                   which studies there are
  canary reproduce table1                            the paper's table at a scale for a CPU: five methods, three environments
  canary reproduce table1 --only icy-lake-cpo        one row of it; the table shows what is there
  canary reproduce table1 --scale paper              the paper's equations, steps and 30 seeds
  canary reproduce epsilon-sweep --seeds 20          more seeds: those that are there are kept
  canary reproduce table1 --rebuild                  tables and figures from stored results, without training
  canary reproduce --rebuild                         the same of every study that is stored

What is finished is not trained again, whichever study trained it. After Ctrl-C the same command continues. Results with other
settings are kept beside the new ones."""

    study: Annotated[Positional[str], flag("STUDY")] = ""
    """The study; without it they are listed."""
    only: Annotated[tuple[str, ...], UseAppendAction, flag("ROW")] = ()
    """Train this row alone; the other options apply to it. Repeatable."""
    rebuild: Switch = False
    """Train nothing: write tables and figures from stored results."""
    scale: Annotated[Literal["cpu", "paper"] | None, flag("cpu|paper", "cpu")] = None
    """`cpu`: the study's seeds and steps. `paper`: the paper's equations, steps and 30 seeds."""
    seeds: Annotated[str | None, flag("N|LIST")] = None
    """How many seeds, from the row's first on, or which (3,5,7 or 0-9)."""
    steps: Annotated[str | None, flag("N")] = None
    """Environment steps per seed."""
    preset: Annotated[str | None, flag("NAME")] = None
    """Preset of all rows."""
    engine: Annotated[Literal["local", "ray"] | None, flag("local|ray", "local")] = None
    """Train on all cores of this machine, or over a Ray cluster (docs/clusters.md)."""
    runs: Annotated[str, flag("DIR", "runs")] = "runs"
    """Directory for the runs."""
    results: Annotated[str, flag("DIR", "results")] = "results"
    """Directory for stored results, tables and figures."""
    quiet: Switch = False
    """Show no progress; print only the paths of what was written."""


def reproduce(options: Reproduce) -> int:
    if options.rebuild:
        return _rebuild(options)
    if not options.study:
        for name in _given(options):
            raise CanaryError(f"{name} needs a study: canary reproduce STUDY.")
        for name, study in ALL_STUDIES.items():
            print(f"{name:<20}{study.title}: {_size(study)}")
        return 0
    if options.study not in ALL_STUDIES:
        raise CanaryError(
            f"There is no study called {options.study!r}{nearest(options.study, ALL_STUDIES)}"
        )
    print_study(_train(options), options.quiet)
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


def _given(options: Reproduce) -> list[str]:
    """The options about training that were given."""
    names = ("only", "scale", "seeds", "steps", "preset", "engine")
    return [f"--{name}" for name in names if getattr(options, name) not in (None, ())]


def _rebuild(options: Reproduce) -> int:
    """One study, or all that are stored. One that cannot be shown does not stop the others."""
    from canary.studies.page import save_views, stored_studies

    for name in _given(options):
        raise CanaryError(f"--rebuild trains nothing, so it takes no {name}.")
    results = Path(options.results)
    stored = stored_studies(results)
    if options.study and options.study not in (*stored, *ALL_STUDIES):
        known = dict.fromkeys([*stored, *ALL_STUDIES])  # a sweep has a name of its own
        raise CanaryError(
            f"There is no study called {options.study!r}{nearest(options.study, known)}"
        )
    names = [options.study] if options.study else stored
    if not names:
        raise CanaryError(f"{results} holds no study; `canary reproduce NAME` makes one.")
    problems = []
    for name in names:
        try:
            print_study(save_views(results / name), options.quiet)
        except CanaryError as error:
            problems.append(str(error))
    if problems:
        raise CanaryError(" ".join(problems))
    return 0


def _train(options: Reproduce) -> dict[str, Path]:
    from canary.studies.runner import Places, Request, engine_named
    from canary.studies.runner import reproduce as train_study

    study = ALL_STUDIES[options.study]
    if not study.rows and options.engine is not None:
        raise CanaryError(f"{options.study} has no rows to train, so it has no --engine.")
    request = Request(
        seeds=None if options.seeds is None else parse_seeds(options.seeds),
        steps=whole("--steps", options.steps),
        preset=options.preset,
        scale=options.scale or "cpu",
        only=options.only,
    )
    places = Places(runs=Path(options.runs), results=Path(options.results))
    engine = engine_named(options.engine or "local", options.quiet)
    return train_study(options.study, study, places, request, engine=engine, quiet=options.quiet)
