"""Make the configuration of a run from a few choices."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from canary.algorithms import ALGORITHMS
from canary.checking.structure import check_structure
from canary.config import presets
from canary.config.run_config import RunConfig, TrainingConfig, checked_config, method_name
from canary.config.settings import canonical, changed, check, leaves, table
from canary.config.sources import make_environment
from canary.constraints import CONSTRAINTS, Constraint, Joint, Kind, One, parts_of
from canary.environments import ENVIRONMENTS
from canary.environments.protocol import Environment, default_constraint, name_of_environment
from canary.errors import CanaryError, nearest
from canary.host.references import label_of, look_up, looks_up
from canary.values import Texts, convert

Overrides = Mapping[str, Any] | Texts
"""{"algo.dead_zone": 0.6} or ("algo.dead_zone=0.6",)."""
Said = Mapping[str, Any] | Constraint | Sequence[One] | None
"""A constraint, a list of them for several costs, or some of `kind`, `limit` and `epsilon`, each a
value or a list."""
SECTIONS = ("env", "algo", "constraint", "training")
CHOICES = (
    "canary.Chance(limit=..., epsilon=...), canary.Mean(limit=...) or canary.CVaR(limit=..., "
    "epsilon=...)"
)


def make_config(
    env: str | Environment = "IcyLake",
    algorithm: Any = "canary",
    constraint: Said = None,
    preset: str = "fast",
    overrides: Overrides = (),
    cost: str | None = None,
    **training: Any,
) -> RunConfig:
    """A run's configuration from a few choices; the preset chooses everything else.

    `env` may refer to code (`canary.config.sources`). Then `cost` says where the cost is, and
    `env.NAME=VALUE` is an argument of that code. `algorithm` is a name, settings, or a method of
    the user (`make_method`); fields that settings name are kept, and the preset chooses the others.
    `overrides` change single settings; `training` holds fields of `TrainingConfig`.
    """
    changes = by_section(overrides)
    environment = make_environment(env, changes["env"], cost)
    if isinstance(env, str) and ":" in env:
        check_structure(environment)
    settings, algorithm_name = make_method(algorithm)
    name, preset = name_of_environment(environment), canonical(preset, presets.PRESETS, "preset")
    if isinstance(constraint, Mapping | None):
        constraint = {**(constraint or {}), **changes["constraint"]}
    own = complete_constraint(constraint, default_constraint(environment), name)
    problem = RunConfig(
        environment=environment,
        algorithm=settings,
        algorithm_name=algorithm_name,
        constraint=complete_constraint(changes["constraint"], own, name),
        preset=preset,
    )
    config = presets.PRESETS[preset](problem)  # depends on the constraint
    is_named = isinstance(algorithm, str | type)
    chosen = {} if is_named else {each.path: each.value for each in leaves(settings, named=True)}
    if chosen and type(config.algorithm) is not type(settings):
        raise CanaryError(
            f"The preset {preset} trains {type(config.algorithm).__name__} instead of "
            f"{type(settings).__name__}; pass its settings, or choose another preset."
        )
    return checked_config(
        replace(
            config,
            algorithm=changed(config.algorithm, chosen | changes["algo"], "algo"),
            training=changed(config.training, changes["training"] | training, "training"),
        )
    )


def by_section(overrides: Overrides) -> dict[str, dict[str, Any]]:
    """Overrides by section, given as a dictionary or as texts."""
    if isinstance(overrides, Mapping):
        items: list[Any] = list(overrides.items())
    else:
        texts = [overrides] if isinstance(overrides, str) else overrides
        items = [[part.strip() for part in text.split("=", 1)] for text in texts]
    changes: dict[str, dict[str, Any]] = {section: {} for section in SECTIONS}
    for item in items:
        if len(item) < 2 or not isinstance(item[0], str) or "." not in item[0]:
            raise CanaryError(
                "--set expects section.setting=value, for example algo.dead_zone=0.6, not "
                f"{item[0]!r:.60}."
            )
        section, _, path = item[0].partition(".")
        if section not in changes:
            raise CanaryError(f"--set knows no section {section!r:.60}{nearest(section, SECTIONS)}")
        changes[section][path] = item[1]
    return changes


def make_method(algorithm: Any) -> tuple[Any, str]:
    """The settings of a method, and its name. `algorithm` is one of canary's names,
    `package.module:Class`, settings, or their class."""
    if isinstance(algorithm, str) and ":" in algorithm:
        algorithm = look_up(algorithm)
    elif isinstance(algorithm, str):
        algorithm = ALGORITHMS[canonical(algorithm, ALGORITHMS, "algorithm")]
    kind = algorithm if isinstance(algorithm, type) else type(algorithm)
    check_method(kind)
    try:
        settings = algorithm() if algorithm is kind else algorithm
    except TypeError as error:
        raise CanaryError(f"{kind.__name__} needs settings: {error}; pass an instance.") from None
    check(settings, "algo")
    name = method_name(kind)
    return settings, kind.__name__ if ":" in name else name


def check_method(kind: Any) -> None:
    """Raise unless this is a class of settings that makes an algorithm and can be imported by name."""
    known = {*dir(kind), *getattr(kind, "__dataclass_fields__", ())}
    if not dataclasses.is_dataclass(kind) or not {"estimation", "serves", "make"} <= known:
        raise CanaryError(
            "algorithm must be a name such as canary, settings such as CanaryConfig(dead_zone=0.6), "
            "or a method of your own (docs/examples/own-constraint.md); "
            f"{getattr(kind, '__name__', repr(kind))} is none of these."
        )
    if not looks_up(label_of(kind)):
        raise CanaryError(
            f"{label_of(kind)} is defined inside a function, and a run finds its method by "
            "module:name: define it at the top of a file."
        )


def complete_constraint(said: Said, suggested: Any, environment: str) -> Constraint:
    """The constraint, completed by the one that the environment suggests."""
    if isinstance(said, list | tuple):
        said = said[0] if len(said) == 1 else Joint(tuple(said))
    if isinstance(suggested, list | tuple):
        suggested = Joint(tuple(suggested))
    if isinstance(said, One | Joint):
        return said
    if not isinstance(suggested, One | Joint | None):
        raise CanaryError(
            f"The default_constraint of {environment} must be {CHOICES}, not {suggested!r:.60}."
        )
    if not isinstance(said, Mapping | None) or not {*(said or ())} <= {"kind", "limit", "epsilon"}:
        raise CanaryError(f"The constraint must be {CHOICES}, not {said!r:.60}.")

    def listed(name: str) -> list[Any]:
        value = (said or {}).get(name)
        value = value.split(",") if isinstance(value, str) else value
        return [] if value is None else [*value] if isinstance(value, list | tuple) else [value]

    kinds, limits, epsilons = map(listed, ("kind", "limit", "epsilon"))
    own: Sequence[One | None] = () if suggested is None else parts_of(suggested)
    count = len(own) if len(own) > 1 else max(len(kinds), len(limits), 1)
    own = own if len(own) == count else (None,) * count
    kinds = kinds or [getattr(part, "kind", "chance") for part in own]
    kinds = [convert(Kind, kind, "The constraint") for kind in kinds]
    kinds = kinds * count if len(kinds) == 1 else kinds
    tails = sum(kind != "mean" for kind in kinds)
    if len(kinds) != count or len(limits) not in (0, count) or len(epsilons) not in (0, tails):
        raise CanaryError(
            f"{environment} takes {count} limits, one kind for all or for each, and {tails} epsilons "
            f"(a mean has no epsilon), not {len(limits)} limits, {len(kinds)} kinds and "
            f"{len(epsilons)} epsilons."
        )
    given = {"limit": iter(limits), "epsilon": iter(epsilons)}
    parts: list[One] = []
    for kind, part in zip(kinds, own, strict=True):
        values: dict[str, Any] = {}
        for name in ("limit",) if kind == "mean" else ("limit", "epsilon"):
            values[name] = next(given[name], getattr(part, name, None))
            if values[name] is None:
                raise CanaryError(
                    f"{environment} has no default {name} for a {kind} constraint: give the {name} "
                    f"(--{name}), or pass constraint={CHOICES}."
                )
        parts.append(CONSTRAINTS[kind](**values))
    return parts[0] if count == 1 else Joint(tuple(parts))


def settings_table(name: str) -> list[dict[str, str]]:
    """The settings of the algorithm or environment of this name, or of `training`, as rows."""
    known = {**ALGORITHMS, **ENVIRONMENTS, "training": TrainingConfig}
    name = canonical(name, known, "algorithm or environment")
    section = "algo" if name in ALGORITHMS else "env" if name in ENVIRONMENTS else "training"
    return table(known[name](), section)
