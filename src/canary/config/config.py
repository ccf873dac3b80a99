"""Make the configuration of a run from a few choices; write it as JSON and read it back."""

import dataclasses
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from canary.algorithms import ALGORITHMS
from canary.checking.structure import check_structure
from canary.config import presets
from canary.config.run_config import RunConfig, Said, TrainingConfig, checked, complete
from canary.config.settings import check as check_settings
from canary.config.settings import leaves, override, parse, table, to_dict
from canary.config.sources import Source, build
from canary.constraints import from_dict as constraint_from_dict
from canary.constraints import to_dict as constraint_to_dict
from canary.environments import ENVIRONMENTS
from canary.environments.protocol import (
    Environment,
    default_constraint,
    name_of_environment,
    settings_of,
    with_settings,
)
from canary.errors import CanaryError, nearest
from canary.host.references import label_of, look_up, looks_up
from canary.values import Texts, from_dict

Overrides = Mapping[str, Any] | Texts
"""{"algo.dead_zone": 0.6} or ("algo.dead_zone=0.6",)."""
Pairs = list[tuple[str, Any]]
SECTIONS = {"algo": "algorithm", "training": "training", "constraint": "constraint"}
"""The parts of a run by their names in `--set`, without `env`, which `make_environment` reads."""


def canonical(name: str, known: Iterable[str], what: str) -> str:
    """The known name that `name` means; case, `-` and `_` do not matter."""

    def fold(text: str) -> str:
        return text.lower().replace("-", "").replace("_", "")

    for candidate in known:
        if fold(candidate) == fold(name):
            return candidate
    raise CanaryError(f"There is no {what} called {name!r:.60}{nearest(name, known)}")


def make_config(
    env: str | Environment = "IcyLake",
    algorithm: Any = "canary",
    constraint: Said = None,
    preset: str = "fast",
    overrides: Overrides = (),
    cost: str | None = None,
    **training: Any,
) -> RunConfig:
    """A run's configuration from a few choices; everything else comes from the preset.

    `env` may refer to code (`canary.config.sources`): then `cost` says where the cost is, and
    `env.NAME=VALUE` gives an argument. `algorithm` is a name, settings, or a method of the user's
    own (`make_method`); the fields that were named in settings are kept, and the preset chooses the
    others. `overrides` change single settings; `training` holds fields of `TrainingConfig`.
    """
    environment, name, pairs = make_environment(env, pairs_of(overrides), cost)
    settings, algorithm_name = make_method(algorithm)
    preset = canonical(preset, presets.PRESETS, "preset")
    problem = RunConfig(
        environment=environment,
        environment_name=name,
        algorithm=settings,
        algorithm_name=algorithm_name,
        constraint=complete(constraint, default_constraint(environment), name),
        preset=preset,
    )
    limits = [pair for pair in pairs if pair[0].startswith("constraint.")]
    # A preset depends on the final constraint
    config = presets.PRESETS[preset](_changed(problem, limits))
    is_named = isinstance(algorithm, str | type)
    chosen = [] if is_named else [(f"algo.{s.path}", s.value) for s in leaves(settings, named=True)]
    if chosen and type(config.algorithm) is not type(settings):
        raise CanaryError(
            f"The preset {preset} trains {type(config.algorithm).__name__} instead of "
            f"{type(settings).__name__}; pass settings of that, or another preset."
        )
    rest = [pair for pair in pairs if pair not in limits]
    last = [(f"training.{name}", value) for name, value in training.items()]
    return checked(_changed(config, [*chosen, *rest, *last]))


def make_method(algorithm: Any) -> tuple[Any, str]:
    """The settings of a method, and its name. A method is a name, its settings, or their class:
    one of canary's, or one of the user's own, which `package.module:Class` names as well."""
    if isinstance(algorithm, str):
        name = algorithm if ":" in algorithm else canonical(algorithm, ALGORITHMS, "algorithm")
        kind = look_up(name) if ":" in name else ALGORITHMS[name]
    else:
        kind = algorithm if isinstance(algorithm, type) else type(algorithm)
    check_method(kind)
    try:
        settings = kind() if isinstance(algorithm, str | type) else algorithm
    except TypeError as error:
        raise CanaryError(f"{kind.__name__} needs settings: {error}; pass an instance.") from None
    check_settings(settings, "algo")
    ours = method_name(kind)
    return settings, kind.__name__ if ":" in ours else ours


def check_method(kind: Any) -> None:
    """Raise unless this is a class of settings that can make an algorithm and be found again by its
    name."""
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


def method_name(kind: type) -> str:
    """How a run stores a method: the name of one of canary's, or `module:Class` of the user's own."""
    return next((name for name, known in ALGORITHMS.items() if known is kind), label_of(kind))


def make_environment(
    env: str | Environment, pairs: Pairs, cost: str | None = None, *, check: bool = True
) -> tuple[Environment, str, Pairs]:
    """The environment of a name, a reference to code, or an object; its name; and the pairs of other
    sections."""
    rest = [pair for pair in pairs if not pair[0].startswith("env.")]
    changes = {path.removeprefix("env."): v for path, v in pairs if path.startswith("env.")}
    if isinstance(env, str) and ":" in env:
        arguments = {name: parse(value) for name, value in changes.items()}
        environment, changes = build(Source(env, arguments, cost)), {}
    elif isinstance(env, str) and re.search(r"-v\d+$", env):  # as Gymnasium names them
        raise CanaryError(f"There is no environment called {env!r}; try gymnasium:{env}.")
    elif cost is not None:
        raise CanaryError(
            f"The cost of {env} is its own; --cost is for environments of other packages."
        )
    elif isinstance(env, str):
        name = canonical(env, ENVIRONMENTS, "environment")
        return override(ENVIRONMENTS[name](), changes, "env"), name, rest
    else:
        environment = env
    if check:
        check_structure(environment)
    if changes and callable(getattr(environment, "with_settings", None)):
        spelled = {name: parse(value) for name, value in changes.items()}
        environment = with_settings(environment, spelled)
    elif changes:
        environment = override(environment, changes, "env")
    return environment, name_of_environment(environment), rest


def pairs_of(overrides: Overrides) -> Pairs:
    """The paths and values of overrides, which are a dictionary or texts."""
    if isinstance(overrides, Mapping):
        items: list[Any] = list(overrides.items())
    else:
        texts = [overrides] if isinstance(overrides, str) else overrides
        items = [[part.strip() for part in text.split("=", 1)] for text in texts]
    for item in items:
        if len(item) < 2 or not isinstance(item[0], str) or "." not in item[0]:
            raise CanaryError(
                "--set expects section.setting=value, for example algo.dead_zone=0.6, not "
                f"{item[0]!r:.60}."
            )
    return [(path, value) for path, value in items]


def _changed(config: RunConfig, pairs: Sequence[tuple[str, Any]]) -> RunConfig:
    """All settings replaced, those of a section together."""
    changes: dict[str, dict[str, Any]] = {}
    for path, value in pairs:
        section, _, rest = path.partition(".")
        if section not in SECTIONS:
            known = ("env", *SECTIONS)
            raise CanaryError(f"--set knows no section {section!r:.60}{nearest(section, known)}")
        changes.setdefault(section, {})[rest] = value
    parts: dict[str, Any] = {
        SECTIONS[section]: override(getattr(config, SECTIONS[section]), values, section)
        for section, values in changes.items()
    }
    return replace(config, **parts)


def settings_table(name: str) -> list[dict[str, str]]:
    """The settings of the algorithm or environment of this name, or of `training`, as rows."""
    known = {**ALGORITHMS, **ENVIRONMENTS, "training": TrainingConfig}
    name = canonical(name, known, "algorithm or environment")
    section = "algo" if name in ALGORITHMS else "env" if name in ENVIRONMENTS else "training"
    return table(known[name](), section)


def config_to_dict(config: RunConfig) -> dict[str, Any]:
    return {
        "environment": {
            "name": config.environment_name,
            "settings": settings_of(config.environment),
        },
        "algorithm": {
            "name": config.algorithm_name,
            "method": method_name(type(config.algorithm)),
            "settings": to_dict(config.algorithm),
        },
        "constraint": constraint_to_dict(config.constraint),
        "training": to_dict(config.training),
        "preset": config.preset,
    }


def config_from_dict(
    data: dict[str, Any],
    environment: Environment | None = None,
    changes: tuple[str, ...] = (),
    method: type | None = None,
) -> RunConfig:
    """Rebuild a configuration. `environment` and `method` are the user's own, if the run was trained
    with them; `canary.runs.environment` imports them once they are trusted. `changes` say how the
    environment differs from that of training."""
    try:
        name, settings = data["environment"]["name"], data["environment"]["settings"]
        known = data["algorithm"]["method"]
        if environment is None:
            if name not in ENVIRONMENTS:
                raise CanaryError(
                    f"The run was trained on {name!r:.60}, which is not a named environment: in "
                    "Python, canary.load(RUN, environment)."
                )
            environment = from_dict(ENVIRONMENTS[name], settings, "env")
        if method is None and known not in ALGORITHMS:
            raise CanaryError(f"The run was trained with {known!r:.60}, which is not canary's own.")
        config = RunConfig(
            environment=environment,
            environment_name=name,
            algorithm=from_dict(method or ALGORITHMS[known], data["algorithm"]["settings"], "algo"),
            algorithm_name=data["algorithm"]["name"],
            constraint=constraint_from_dict(data["constraint"]),
            training=from_dict(TrainingConfig, data["training"], "training"),
            preset=data["preset"],
            environment_changes=changes,
        )
    except (KeyError, TypeError) as error:
        raise CanaryError(f"The run's configuration is incomplete ({error}).") from None
    except CanaryError as error:
        raise CanaryError(
            f"{error} If another version of canary made the run (manifest.json names it), use that."
        ) from None
    return checked(config)
