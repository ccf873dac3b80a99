"""`canary reproduce`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

from tyro.conf import Positional, UseAppendAction

from canary.commands.common import Switch, flag
from canary.errors import CanaryError
from canary.experiments.settings import nearest
from canary.experiments.studies import STUDIES


@dataclass(frozen=True, kw_only=True)
class Reproduce:
    """Train every variant of a comparison on the same seeds, and write its table and figure."""

    EXAMPLES: ClassVar[str] = """
  canary reproduce                                   which studies there are
  canary reproduce methods                           the five methods on IcyLake beside the paper's table
  canary reproduce ablation --only default           one variant of a study; the table shows what is there

What is finished is not trained again, and after Ctrl-C the same command goes on. --results gets, of every variant,
its settings, summary and episodes, and the table and figure made from them."""

    study: Annotated[Positional[str], flag("STUDY")] = ""
    """Which study; without it they are listed."""
    only: Annotated[tuple[str, ...], UseAppendAction, flag("VARIANT")] = ()
    """Train this variant alone. Repeatable."""
    runs: Annotated[str, flag("DIR", "runs")] = "runs"
    """Directory for the runs."""
    results: Annotated[str, flag("DIR", "results")] = "results"
    """Directory for tables and figures."""
    quiet: Switch = False
    """Show no progress; print only the paths of what was written."""


def reproduce(options: Reproduce) -> int:
    if not options.study:
        for name, study in STUDIES.items():
            steps = len(study.variants) * len(study.seeds) * study.total_steps
            print(f"{name:<12} {study.title}: {len(study.variants)} variants, {steps / 1e6:g}M steps in all")
        return 0
    if options.study not in STUDIES:
        raise CanaryError(f"There is no study called {options.study!r}{nearest(options.study, STUDIES)}")
    from canary.reproduction import Places
    from canary.reproduction import reproduce as train_study

    places = Places(runs=Path(options.runs), results=Path(options.results))
    paths = train_study(options.study, STUDIES[options.study], places, only=options.only, quiet=options.quiet)
    if not options.quiet:
        print(paths["table"].read_text())
    for label, path in paths.items():
        print(path if options.quiet else f"{label:<8}{path}")
    return 0
