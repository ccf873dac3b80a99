"""`canary reproduce`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from tyro.conf import Positional, UseAppendAction

from canary.cli.common import Switch, flag, parse_seeds, whole
from canary.errors import CanaryError, nearest
from canary.studies.catalogue import ALL_STUDIES
from canary.terminal.study_table import print_studies, print_study


@dataclass(frozen=True, kw_only=True)
class Reproduce:
    """Train what is missing of a study and write its tables and figures, or make those again from
    what is stored."""

    EXAMPLES: ClassVar[str] = """
  canary reproduce                                   which studies there are
  canary reproduce table1                            the paper's table at a scale for a CPU: five methods, three environments
  canary reproduce table1 --only icy-lake-cpo        one row of it; the table shows what is there
  canary reproduce table1 --scale paper              the paper's equations, steps and 30 seeds
  canary reproduce epsilon-sweep --seeds 20          more seeds: those that are there are kept
  canary reproduce table1 --rebuild                  tables and figures from stored results, without training
  canary reproduce --rebuild                         the same of every study that is stored

What is finished is not trained again, whichever study trained it, and after Ctrl-C the same command goes on. Results with other
settings are kept beside the new ones."""

    study: Annotated[Positional[str], flag("STUDY")] = ""
    """Which study; without it they are listed."""
    only: Annotated[tuple[str, ...], UseAppendAction, flag("VARIANT")] = ()
    """Train this variant alone; what the other options say is of it. Repeatable."""
    rebuild: Switch = False
    """Train nothing: write tables and figures from the results that are there."""
    scale: Annotated[Literal["cpu", "paper"] | None, flag("cpu|paper", "cpu")] = None
    """`cpu`: the seeds and steps that the study states. `paper`: the paper's equations, steps and
    30 seeds."""
    seeds: Annotated[str | None, flag("N|LIST")] = None
    """How many seeds, from the study's first on, or which (3,5,7 or 0-9)."""
    steps: Annotated[str | None, flag("N")] = None
    """Environment steps per seed."""
    preset: Annotated[str | None, flag("NAME")] = None
    """Preset of all variants: paper or fast."""
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
        for name in _said(options):
            raise CanaryError(
                f"{name} is of one study: canary reproduce STUDY; without options they are listed."
            )
        print_studies(ALL_STUDIES)
        return 0
    if options.study not in ALL_STUDIES:
        raise CanaryError(
            f"There is no study called {options.study!r}{nearest(options.study, ALL_STUDIES)}"
        )
    print_study(_train(options), options.quiet)
    return 0


def _said(options: Reproduce) -> list[str]:
    """The options about training that were given."""
    asked = {
        "--only": options.only,
        "--scale": options.scale,
        "--seeds": options.seeds is not None,
        "--steps": options.steps is not None,
        "--preset": options.preset is not None,
        "--engine": options.engine,
    }
    return [name for name, value in asked.items() if value]


def _rebuild(options: Reproduce) -> int:
    """Of one study, or of all that are stored; one that cannot be shown does not keep the others
    from it."""
    from canary.studies.views import save_views, stored_studies

    for name in _said(options):
        raise CanaryError(
            f"--rebuild shows what is stored and trains nothing, so {name} has no meaning with it."
        )
    results = Path(options.results)
    known = stored_studies(results)
    names = [options.study] if options.study else known
    nameable = dict.fromkeys([*known, *ALL_STUDIES])  # a sweep has a name of its own
    if options.study and options.study not in nameable:
        raise CanaryError(
            f"There is no study called {options.study!r}{nearest(options.study, nameable)}"
        )
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
    from canary.studies.plan import Request
    from canary.studies.run import Places, engine_named
    from canary.studies.run import reproduce as train_study

    request = Request(
        seeds=None if options.seeds is None else parse_seeds(options.seeds),
        steps=None if options.steps is None else whole("--steps", options.steps),
        preset=options.preset,
        scale=options.scale or "cpu",
        only=options.only,
    )
    places = Places(runs=Path(options.runs), results=Path(options.results))
    study = ALL_STUDIES[options.study]
    if study.view == "relative-variance" and options.engine is not None:
        raise CanaryError(
            f"{options.study} trains no policy and computes its points on this machine, so --engine "
            "has no meaning for it."
        )
    engine = engine_named(options.engine or "local", options.quiet)
    return train_study(options.study, study, places, request, engine=engine, quiet=options.quiet)
