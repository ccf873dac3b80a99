"""Studies on the terminal: which there are, and what was written of one."""

from collections.abc import Mapping
from pathlib import Path

from canary.studies.data import Study


def print_studies(studies: Mapping[str, Study]) -> None:
    for name, study in studies.items():
        print(f"{name:<20}{study.title}: {_size(study)}")


def print_study(paths: dict[str, Path], quiet: bool) -> None:
    """The table, and where everything is."""
    if not quiet:
        print(paths["table"].read_text())
    for label, path in paths.items():
        print(path if quiet else f"{label:<8}{path}")


def _size(study: Study) -> str:
    if study.units_of is not None:
        return f"shows {study.units_of}"
    if not study.variants:
        return f"{len(study.seeds)} seeds"
    sizes = (
        (one.seeds or study.seeds, one.total_steps or study.total_steps) for one in study.variants
    )
    steps = sum(len(seeds) * steps for seeds, steps in sizes)
    return f"{len(study.variants)} variants, {steps / 1e6:g}M steps in all"
