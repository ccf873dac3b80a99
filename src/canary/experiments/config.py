"""The configuration of a run: what is trained on what, under which constraint, for how long."""

import json
from dataclasses import dataclass, field, replace
from typing import Any

from canary.algorithms import ALGORITHMS
from canary.environments import ENVIRONMENTS
from canary.environments.protocol import Environment
from canary.errors import CanaryError
from canary.experiments.catalogue import PAPER_ALGORITHMS, PAPER_SETTINGS, PRESETS
from canary.experiments.names import TOTAL_STEPS
from canary.experiments.ranges import check_algorithm, check_integers
from canary.experiments.settings import from_dict, nearest, override, to_dict
from canary.types import Chance

SECTIONS = {"env": "environment", "algo": "algorithm", "training": "training", "constraint": "constraint"}


@dataclass(frozen=True, kw_only=True)
class TrainingConfig:
    """How much is trained, on how many environments, and how it is cut into batches and programs."""

    seeds: tuple[int, ...] = (0, 1, 2, 3)
    """Which seeds: seed i is the same run whatever runs beside it."""
    base_seed: int = 0
    """The key from which all seeds are derived."""
    total_steps: int = TOTAL_STEPS
    """Environment steps per seed, over all its parallel environments."""
    environments: int = 5
    """Parallel environments per seed."""
    rollout_length: int = 200
    """Steps of each environment per update."""
    stagger: bool = True
    """Start the first episodes at random times, so that fixed-horizon environments do not march in step."""
    chunk: int = 10
    """Updates per compiled program call; the display moves once per chunk. Has no influence on results."""
    checkpoint_seconds: float = 30.0
    """Least time between two checkpoints."""
    seeds_per_device: int = 0
    """Seeds that one device trains at once, as one vectorised program; 0 chooses 1 on CPUs and all on accelerators."""
    merge_capacity: int = 512
    """On CPUs, evaluate networks once per distinct input where a batch has at most this many; 0 turns it off."""

    def __post_init__(self):
        for name in ("total_steps", "environments", "rollout_length", "chunk"):
            if getattr(self, name) < 1:
                raise CanaryError(f"training.{name} must be at least 1, not {getattr(self, name)}.")
        if not self.seeds:
            raise CanaryError("At least one seed is needed.")
        if len(set(self.seeds)) < len(self.seeds) or min(self.seeds) < 0 or max(self.seeds) >= 2**31:
            raise CanaryError(f"Seeds must be different whole numbers from 0 to 2**31 - 1, not {self.seeds}.")
        if self.total_steps < self.batch:
            raise CanaryError(
                f"total_steps ({self.total_steps}) is less than one update, which takes {self.batch} steps "
                f"({self.environments} environments x {self.rollout_length} steps)."
            )
        for name in ("seeds_per_device", "merge_capacity", "checkpoint_seconds", "base_seed"):
            if getattr(self, name) < 0:
                raise CanaryError(f"training.{name} must not be negative.")
        if (
            self.base_seed >= 2**32
        ):  # JAX would silently keep the low bits only, and two base seeds would be one
            raise CanaryError(f"training.base_seed must be less than 2**32, not {self.base_seed}.")

    @property
    def batch(self) -> int:
        return self.environments * self.rollout_length

    @property
    def updates(self) -> int:
        return self.total_steps // self.batch


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """A whole run. `environment` is the environment itself: a frozen dataclass whose fields are its settings."""

    environment: Environment
    environment_name: str
    algorithm: Any
    algorithm_name: str
    constraint: Chance
    training: TrainingConfig = field(default_factory=TrainingConfig)
    preset: str = "fast"


def canonical(name: str, known: dict[str, Any], what: str) -> str:
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
    constraint: Chance | None = None,
    preset: str = "fast",
    overrides: tuple[str, ...] = (),
    **training: Any,
) -> RunConfig:
    """A run's configuration from a few choices; everything else comes from the paper's settings and the preset.

    `training` holds fields of `TrainingConfig`; `overrides` are texts such as `algo.target_kl=0.02`.
    """
    environment, name = _environment(env)
    algorithm = canonical(algorithm, ALGORITHMS, "algorithm")
    preset = canonical(preset, PRESETS, "preset")
    paper = PAPER_SETTINGS.get(name)
    if constraint is None:
        if paper is None:
            raise CanaryError(
                f"{name} has no default constraint: pass constraint=canary.Chance(limit=..., epsilon=...)."
            )
        constraint = Chance(limit=paper.limit, epsilon=paper.epsilon)
    if not isinstance(constraint, Chance):
        raise CanaryError(
            f"The constraint must be canary.Chance(limit=..., epsilon=...), not {constraint!r}."
        )
    if paper is not None:
        batch = {"environments": paper.environments, "rollout_length": paper.rollout_length}
        training = batch | PRESETS[preset].batch(name, algorithm) | training
    settings = _algorithm_settings(algorithm, name, preset)
    config = RunConfig(
        environment=environment,
        environment_name=name,
        algorithm=settings,
        algorithm_name=algorithm,
        constraint=constraint,
        training=from_dict(TrainingConfig, training, "training"),
        preset=preset,
    )
    for item in overrides:
        config = apply_override(config, item)
    return checked(config)


def checked(config: RunConfig) -> RunConfig:
    """The same configuration, if all of its numbers make sense together."""
    check_algorithm(config.algorithm, config.training.batch)
    check_integers(config.environment, "env")
    check_integers(config.algorithm, "algo")
    return config


def _algorithm_settings(algorithm: str, environment: str, preset: str) -> Any:
    """The algorithm's defaults, then what the paper states for this environment, then the preset."""
    stated = PAPER_ALGORITHMS.get(algorithm, {}).get(environment, {})
    settings = ALGORITHMS[algorithm].config()
    for path, value in (stated | PRESETS[preset].changes(environment, algorithm)).items():
        settings = override(settings, path, json.dumps(value), "algo")
    return settings


def _environment(env: str | Environment) -> tuple[Environment, str]:
    if isinstance(env, str):
        name = canonical(env, ENVIRONMENTS, "environment")
        return ENVIRONMENTS[name](), name
    if not isinstance(env, Environment):
        raise CanaryError(
            f"{type(env).__name__} is not an environment: it needs reset, step, horizon, observation_size, "
            "action_space and normalise_observation (canary.environments.protocol)."
        )
    return env, type(env).__name__


def apply_override(config: RunConfig, item: str) -> RunConfig:
    """One `section.setting=value`; sections are env, algo, training and constraint."""
    path, equals, text = item.partition("=")
    section, _, rest = path.strip().partition(".")
    if not equals or not rest:
        raise CanaryError(
            f"--set expects section.setting=value, for example algo.target_kl=0.02, not {item!r}."
        )
    if section not in SECTIONS:
        raise CanaryError(f"--set knows no section {section!r}{nearest(section, SECTIONS)}")
    attribute = SECTIONS[section]
    changed = override(getattr(config, attribute), rest, text.strip(), section)
    return replace(config, **{attribute: changed})


def config_to_dict(config: RunConfig) -> dict[str, Any]:
    return {
        "environment": {"name": config.environment_name, "settings": to_dict(config.environment)},
        "algorithm": {"name": config.algorithm_name, "settings": to_dict(config.algorithm)},
        "constraint": to_dict(config.constraint),
        "training": to_dict(config.training),
        "preset": config.preset,
    }


def config_from_dict(data: dict[str, Any], environment: Environment | None = None) -> RunConfig:
    """Rebuild a configuration; `environment` stands in for one that is not among the named environments."""
    try:
        env, algo = data["environment"], data["algorithm"]
        name, algorithm = env["name"], algo["name"]
        if not (isinstance(name, str) and isinstance(algorithm, str)):
            raise CanaryError(
                f"The run's configuration names {name!r} and {algorithm!r}, which are no names."
            )
        parts = env["settings"], algo["settings"], data["constraint"], data["training"], data["preset"]
    except (KeyError, TypeError) as error:
        raise CanaryError(f"The run's configuration is incomplete ({error}).") from None
    env_settings, algo_settings, constraint, training, preset = parts
    if environment is None:
        if name not in ENVIRONMENTS:
            raise CanaryError(
                f"The run was trained on {name}, which is not a named environment: pass environment=..."
            )
        environment = from_dict(ENVIRONMENTS[name], env_settings, "env")
    algorithm = canonical(algorithm, ALGORITHMS, "algorithm")
    config = RunConfig(
        environment=environment,
        environment_name=name,
        algorithm=from_dict(ALGORITHMS[algorithm].config, algo_settings, "algo"),
        algorithm_name=algorithm,
        constraint=from_dict(Chance, constraint, "constraint"),
        training=from_dict(TrainingConfig, training, "training"),
        preset=preset,
    )
    return checked(config)
