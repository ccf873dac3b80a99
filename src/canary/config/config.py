"""From a few choices to the configuration of a run, and from there to JSON and back."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from canary.algorithms import ALGORITHMS
from canary.checking.structure import check_structure, raise_first_error
from canary.config.overrides import from_dict, override, parse, to_dict
from canary.config.presets import PRESETS
from canary.config.run_config import SECTIONS, RunConfig, TrainingConfig, checked, complete
from canary.config.sources import Source, build, is_source
from canary.constraints import Constraint
from canary.constraints import from_dict as constraint_from_dict
from canary.constraints import to_dict as constraint_to_dict
from canary.environments import ENVIRONMENTS
from canary.environments.protocol import Environment, default_constraint
from canary.environments.settings import name_of_environment, settings_of, with_settings
from canary.errors import CanaryError, nearest

Overrides = Mapping[str, Any] | Sequence[str]
"""{"algo.dead_zone": 0.6} or ("algo.dead_zone=0.6",)."""


def canonical(name: str, known: Iterable[str], what: str) -> str:
    """The known name that `name` means; case, `-` and `_` do not matter."""

    def fold(text: str) -> str:
        return text.lower().replace("-", "").replace("_", "")

    for candidate in known:
        if fold(candidate) == fold(name):
            return candidate
    raise CanaryError(f"There is no {what} called {name!r}{nearest(name, known)}")


def make_config(
    env: str | Environment = "IcyLake",
    algorithm: str = "canary",
    constraint: Constraint | Mapping[str, Any] | None = None,
    preset: str = "fast",
    overrides: Overrides = (),
    cost: str | None = None,
    **training: Any,
) -> RunConfig:
    """A run's configuration from a few choices; everything else comes from the preset.

    `env` may refer to code (`canary.config.sources`): then `cost` says where the cost is, and
    `env.NAME=VALUE` gives an argument. `constraint` may be whole, or some of `kind`, `limit` and
    `epsilon`; `overrides` change single settings; `training` holds fields of `TrainingConfig`.
    """
    environment, name, pairs = make_environment(env, _pairs(overrides), cost)
    algorithm = canonical(algorithm, ALGORITHMS, "algorithm")
    preset = canonical(preset, PRESETS, "preset")
    problem = RunConfig(
        environment=environment,
        environment_name=name,
        algorithm=ALGORITHMS[algorithm](),
        algorithm_name=algorithm,
        constraint=complete(constraint, default_constraint(environment), name),
        preset=preset,
    )
    posed = [pair for pair in pairs if pair[0].startswith(("env.", "constraint."))]
    said = [(f"training.{name}", value) for name, value in training.items()]
    # A preset looks at the problem as it is put
    config = PRESETS[preset](_all_changed(problem, posed))
    return checked(_all_changed(config, [*(pair for pair in pairs if pair not in posed), *said]))


def make_environment(
    env: str | Environment,
    pairs: Sequence[tuple[str, Any]] = (),
    cost: str | None = None,
    *,
    check: bool = True,
) -> tuple[Environment, str, list[tuple[str, Any]]]:
    """An environment from a name, a reference to code, or itself; its name, and the pairs that were
    not about it.

    Of a reference the pairs `env.NAME` are arguments; those of a named environment are changed in
    it later.
    """
    pairs = list(pairs)
    if isinstance(env, str) and is_source(env):
        ours = {path.partition(".")[2]: value for path, value in pairs if path.startswith("env.")}
        environment = build(
            Source(env, {key: parse(value, None) for key, value in ours.items()}, cost)
        )
        pairs = [(path, value) for path, value in pairs if not path.startswith("env.")]
    elif isinstance(env, str) and re.search(r"-v\d+$", env):  # as Gymnasium names them
        raise CanaryError(f"There is no environment called {env!r}; try gymnasium:{env}.")
    elif cost is not None:
        raise CanaryError(
            f"The cost of {env} is its own; --cost is for environments of other packages."
        )
    elif isinstance(env, str):
        name = canonical(env, ENVIRONMENTS, "environment")
        return ENVIRONMENTS[name](), name, pairs
    else:
        environment = env
    if check:
        raise_first_error(check_structure(environment))
    return environment, name_of_environment(environment), pairs


def _pairs(overrides: Overrides) -> list[tuple[str, Any]]:
    """The paths and values of overrides, which are a dictionary or texts."""
    if isinstance(overrides, Mapping):
        return list(overrides.items())
    pairs = []
    for item in [overrides] if isinstance(overrides, str) else overrides:
        path, equals, text = item.partition("=")
        if not equals:
            raise _no_override(item)
        pairs.append((path.strip(), text.strip()))
    return pairs


def _all_changed(config: RunConfig, pairs: Sequence[tuple[str, Any]]) -> RunConfig:
    """All settings replaced, in whatever order works: a long map fits into an episode once the
    horizon is raised."""
    while pairs:
        refused, errors = [], []
        for path, value in pairs:
            try:
                config = _changed(config, path, value)
            except CanaryError as error:
                refused.append((path, value))
                errors.append(error)
        if len(refused) == len(pairs):
            raise errors[0]
        pairs = refused
    return config


def _changed(config: RunConfig, path: str, value: Any) -> RunConfig:
    """One setting replaced; sections are env, algo, training and constraint."""
    section, _, rest = path.partition(".")
    if not rest:
        raise _no_override(path)
    if section not in SECTIONS:
        raise CanaryError(f"--set knows no section {section!r}{nearest(section, SECTIONS)}")
    attribute = SECTIONS[section]
    if section == "env":
        return replace(config, environment=changed_environment(config.environment, rest, value))
    return replace(
        config, **{attribute: override(getattr(config, attribute), rest, value, section)}
    )


def changed_environment(environment: Environment, path: str, value: Any) -> Environment:
    """The environment with one setting replaced; the value may be a text."""
    if callable(getattr(environment, "with_settings", None)):
        return with_settings(environment, {path: parse(value, None)})
    return override(environment, path, value, "env")


def _no_override(item: str) -> CanaryError:
    return CanaryError(
        f"--set expects section.setting=value, for example algo.dead_zone=0.6, not {item!r}."
    )


def config_to_dict(config: RunConfig) -> dict[str, Any]:
    return {
        "environment": {
            "name": config.environment_name,
            "settings": settings_of(config.environment),
        },
        "algorithm": {
            "name": config.algorithm_name,
            "method": method_name(config.algorithm),
            "settings": to_dict(config.algorithm),
        },
        "constraint": constraint_to_dict(config.constraint),
        "training": to_dict(config.training),
        "preset": config.preset,
    }


def method_name(settings: Any) -> str:
    """What settings are of: under the `paper` preset Canary is Cantelli-CPO."""
    return next(name for name, kind in ALGORITHMS.items() if kind is type(settings))


def config_from_dict(
    data: dict[str, Any], environment: Environment | None = None, changes: tuple[str, ...] = ()
) -> RunConfig:
    """Rebuild a configuration; `environment` stands in for one that is not among the named
    environments.

    `changes` say how it differs from the one that was trained on (`canary.runs.environment` finds
    them).
    """
    try:
        env, algo = data["environment"], data["algorithm"]
        name, algorithm = env["name"], algo["name"]
        if not (isinstance(name, str) and isinstance(algorithm, str)):
            raise CanaryError(
                f"The run's configuration names {name!r} and {algorithm!r}, which are no names."
            )
        parts = (
            env["settings"],
            algo["settings"],
            data["constraint"],
            data["training"],
            data["preset"],
        )
    except (KeyError, TypeError) as error:
        raise CanaryError(f"The run's configuration is incomplete ({error}).") from None
    env_settings, algo_settings, constraint, training, preset = parts
    if environment is None:
        if name not in ENVIRONMENTS:
            raise CanaryError(
                f"The run was trained on {name}, which is not a named environment: pass "
                "environment=... in Python. The command line needs it, and the function of its "
                "cost if it has one, in a module that can be imported, not in the script that runs."
            )
        environment = from_dict(ENVIRONMENTS[name], env_settings, "env")
    method = _known_algorithm(algo.get("method", algorithm))
    try:
        settings = from_dict(ALGORITHMS[method], algo_settings, "algo")
    except CanaryError as error:
        raise CanaryError(
            f"The run's configuration does not fit this version of canary: {error} "
            "Use the version that trained it (manifest.json names it), or train it again."
        ) from None
    config = RunConfig(
        environment=environment,
        environment_name=name,
        algorithm=settings,
        algorithm_name=algorithm,
        constraint=constraint_from_dict(constraint),
        training=from_dict(TrainingConfig, training, "training"),
        preset=preset,
        environment_changes=changes,
    )
    return checked(config)


def _known_algorithm(name: str) -> str:
    """The algorithm that a run names; one of the user's own is known once its module is imported."""
    try:
        return canonical(name, ALGORITHMS, "algorithm")
    except CanaryError:
        raise CanaryError(
            f"The run was trained with {name!r:.60}, which is no algorithm of canary's: in Python, "
            "import the module that adds it to canary.ALGORITHMS, then canary.load(RUN). Commands "
            "know canary's own alone."
        ) from None
