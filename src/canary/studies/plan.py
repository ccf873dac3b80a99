"""What a study trains: its variants as configurations, at the scale, seeds, steps and preset that are asked for."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from canary.config.config import RunConfig, make_config
from canary.errors import CanaryError, nearest
from canary.studies.data import Study, Variant
from canary.studies.meaning import meaning

PAPER_SEEDS = tuple(range(30))


@dataclass(frozen=True, kw_only=True)
class Request:
    """How much of a study is wanted; what is not said is as the study says."""

    seeds: int | tuple[int, ...] | None = None
    """So many, from the first of the study on, or these."""
    steps: int | None = None
    preset: str | None = None
    scale: Literal["cpu", "paper"] = "cpu"
    """`cpu`: what the study says. `paper`: the paper's equations, steps and 30 seeds."""
    only: tuple[str, ...] = ()


@dataclass(frozen=True)
class PlannedRow:
    """A variant and the configuration of all its seeds."""

    variant: Variant
    config: RunConfig


def planned(name: str, study: Study, request: Request) -> list[PlannedRow]:
    """All rows of a study; with `request.only` the others are as the study says, and are shown but not trained.

    Rows that another preset or scale makes equal are one: one that is asked for, that with the most seeds, or the last.
    """
    check_names(name, study, request.only)
    rows = [
        PlannedRow(variant, configuration(variant, study, request if is_wanted(variant, request) else None))
        for variant in study.variants
    ]
    kept: dict[str, PlannedRow] = {}
    for row in rows:
        same = kept.get(meaning(row.config))
        if same is None or _rank(row, request) >= _rank(same, request):
            kept[meaning(row.config)] = row
    return [row for row in rows if any(row is one for one in kept.values())]


def is_wanted(variant: Variant, request: Request) -> bool:
    return not request.only or variant.name in request.only


def _rank(row: PlannedRow, request: Request) -> tuple[bool, int]:
    return is_wanted(row.variant, request), len(row.config.training.seeds)


def check_names(name: str, study: Study, only: Sequence[str]) -> None:
    known = [variant.name for variant in study.variants]
    for wanted in only:
        if wanted not in known:
            raise CanaryError(f"The study {name} has no variant {wanted!r}{nearest(wanted, known)}")


def configuration(variant: Variant, study: Study, request: Request | None = None) -> RunConfig:
    request = request or Request()
    at_paper_scale = request.scale == "paper"
    steps = request.steps
    if steps is None and not at_paper_scale:
        steps = variant.total_steps or study.total_steps or None
    stated = PAPER_SEEDS if at_paper_scale else variant.seeds or study.seeds
    overrides = variant.overrides if steps is None else (*variant.overrides, f"training.total_steps={steps}")
    preset = request.preset or ("paper" if at_paper_scale else variant.preset)
    environment = variant.environment or study.environment
    return make_config(
        environment, variant.algorithm, None, preset, overrides, seeds=chosen_seeds(request.seeds, stated)
    )


def chosen_seeds(wanted: int | tuple[int, ...] | None, stated: tuple[int, ...]) -> tuple[int, ...]:
    if isinstance(wanted, int):
        return tuple(range(stated[0], stated[0] + wanted))
    return stated if wanted is None else wanted
