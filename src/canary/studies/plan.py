"""What a study trains: its variants as configurations, at the scale, seeds, steps and preset that
are asked for.

Two settings are the same if they mean the same to the numbers of a seed. An option that did not
exist when a unit was made counts as its default, which is what the older code did. Left out are the
seeds, the name of the preset, and how the work is cut into programs and checkpoints, which no
result depends on. `canary sweep` is a study with a variant per combination.
"""

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any, Literal

from canary.config.config import (
    RunConfig,
    canonical,
    config_from_dict,
    config_to_dict,
    make_config,
)
from canary.config.presets import PRESETS
from canary.environments import ENVIRONMENTS
from canary.errors import CanaryError, nearest
from canary.studies.checks import check_config
from canary.studies.data import Study, Variant

PAPER_SEEDS = tuple(range(30))
WITHOUT_INFLUENCE = ("seeds", "chunk", "checkpoint_seconds", "seeds_per_device")
LARGEST_SWEEP = 1000  # combinations


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
    also: tuple[str, ...] = ()
    """Variants whose settings the request makes the same."""

    @property
    def about(self) -> str:
        """What the variant says of itself; under another preset than its own that may not hold."""
        if self.config.preset == canonical(self.variant.preset, PRESETS, "preset"):
            return self.variant.about
        return ", ".join((f"the `{self.config.preset}` preset", *self.variant.overrides))


def planned(name: str, study: Study, request: Request) -> list[PlannedRow]:
    """All rows of a study; with `request.only` the others are as the study says, and are shown but
    not trained.

    Rows that another preset or scale makes equal are one, under the name that is true of it: one
    that is asked for, of the preset, or not named by another; the first of those.
    """
    check_names(name, study, request.only)
    rows = [
        PlannedRow(
            variant, configuration(variant, study, request if is_wanted(variant, request) else None)
        )
        for variant in study.variants
    ]
    for row in rows:
        if request.only and is_wanted(row.variant, request):
            _check_name(row, study, request)
    same: dict[str, list[PlannedRow]] = {}
    for row in rows:
        same.setdefault(meaning(row.config), []).append(row)
    kept = [_one_of(equal, request) for equal in same.values()]
    order = [variant.name for variant in study.variants]
    return sorted(kept, key=lambda row: order.index(row.variant.name))


def _one_of(equal: list[PlannedRow], request: Request) -> PlannedRow:
    """One row of those that are equal, with the most seeds that were asked for."""
    named = max(equal, key=lambda row: _rank(row, request))
    wanted = is_wanted(named.variant, request)
    rows = [row for row in equal if is_wanted(row.variant, request) == wanted]
    config = max(rows, key=lambda row: (len(row.config.training.seeds), row is named)).config
    also = tuple(row.variant.name for row in equal if row is not named)
    return replace(named, config=replace(config, preset=named.config.preset), also=also)


def _check_name(row: PlannedRow, study: Study, request: Request) -> None:
    """Refuse to train what its name does not say, where another variant's name does."""
    preset = row.config.preset
    if not row.variant.is_named_by_preset or preset == row.variant.preset:
        return
    for variant in study.variants:
        if not variant.is_named_by_preset:
            other = configuration(variant, study, request)
            if meaning(other) == meaning(row.config):
                raise CanaryError(
                    f"With the preset {preset} {row.variant.name} is what {variant.name} is; ask "
                    f"for {variant.name}."
                )


def is_wanted(variant: Variant, request: Request) -> bool:
    return not request.only or variant.name in request.only


def _rank(row: PlannedRow, request: Request) -> tuple[bool, bool, bool]:
    is_own = row.config.preset == canonical(row.variant.preset, PRESETS, "preset")
    return is_wanted(row.variant, request), is_own, not row.variant.is_named_by_preset


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
    overrides = (
        variant.overrides
        if steps is None
        else (*variant.overrides, f"training.total_steps={steps}")
    )
    preset = request.preset or ("paper" if at_paper_scale else variant.preset)
    environment = variant.environment or study.environment
    return make_config(
        environment,
        variant.algorithm,
        None,
        preset,
        overrides,
        seeds=chosen_seeds(request.seeds, stated),
    )


def chosen_seeds(wanted: int | tuple[int, ...] | None, stated: tuple[int, ...]) -> tuple[int, ...]:
    if isinstance(wanted, int):
        return tuple(range(stated[0], stated[0] + wanted))
    return stated if wanted is None else wanted


def meaning(config: RunConfig) -> str:
    """A text that is equal for equal settings."""
    plain = config_to_dict(config)
    training = {
        key: value for key, value in plain["training"].items() if key not in WITHOUT_INFLUENCE
    }
    del plain["preset"]
    return json.dumps(plain | {"training": training}, sort_keys=True)


def meaning_of(stored: dict[str, Any]) -> str | None:
    """The same of a stored configuration; None if this version of canary cannot read it."""
    try:
        check_config(Path("config.json"), stored)
        name = stored["environment"]["name"]
        return meaning(config_from_dict(stored)) if name in ENVIRONMENTS else None
    except CanaryError:
        return None


def short_key(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def swept(texts: Sequence[str]) -> list[tuple[str, list[str]]]:
    """`algo.target_kl=0.01,0.02` as (path, values); a value in brackets may hold commas:
    `algo.hidden=[64,64],[32]`."""
    found: list[tuple[str, list[str]]] = []
    for text in texts:
        path, equals, values = text.partition("=")
        parts = re.findall(r"\[[^\]]*\]|[^,\[\]]+", values)
        if not equals or not path.strip() or not parts:
            raise CanaryError(
                "A sweep takes section.setting=value,value, such as algo.target_kl=0.01,0.02, not "
                f"{text!r}."
            )
        if path in dict(found):
            raise CanaryError(
                f"{path} is swept twice; give all of its values at once, separated by commas."
            )
        values = [part.strip() for part in parts]
        if len(set(values)) < len(values):
            hint = (
                f" A list is written in brackets: {path}=[{','.join(values)}]."
                if path.endswith("hidden")
                else ""
            )
            raise CanaryError(f"{path} has the value {values[0]} twice.{hint}")
        found.append((path.strip(), values))
    return found


def sweep_study(
    environment: str,
    algorithm: str,
    preset: str,
    axes: list[tuple[str, list[str]]],
    seeds: tuple[int, ...],
) -> Study:
    """A variant per combination, named by the values that vary."""
    combinations = list(product(*(values for _, values in axes)))
    if len(combinations) > LARGEST_SWEEP:
        raise CanaryError(
            f"The sweep has {len(combinations)} combinations; at most {LARGEST_SWEEP} are allowed."
        )
    varying = [len(values) > 1 for _, values in axes]
    variants = []
    for combination in combinations:
        settings = [(path, value) for (path, _), value in zip(axes, combination, strict=True)]
        named = [pair for pair, varies in zip(settings, varying, strict=True) if varies] or settings
        name = "--".join(f"{path.rpartition('.')[2]}-{value}" for path, value in named) or "default"
        variants.append(
            Variant(
                name=re.sub(r"[^A-Za-z0-9_.+-]+", "_", name)[:120],
                about=" ".join(f"{path}={value}" for path, value in named),
                algorithm=algorithm,
                preset=preset,
                overrides=tuple(f"{path}={value}" for path, value in settings),
            )
        )
    if len({variant.name for variant in variants}) < len(variants):
        raise CanaryError(
            "Two combinations of the sweep would have the same name; sweep fewer settings at once."
        )
    title = f"{algorithm} on {environment}: {', '.join(path for path, _ in axes) or 'as it is'}"
    return Study(
        title=title, environment=environment, seeds=seeds, total_steps=0, variants=tuple(variants)
    )
