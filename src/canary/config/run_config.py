"""The configuration of a run (environment, algorithm, constraint, sizes of training), and its form
as JSON data."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from canary.algorithms import ALGORITHMS
from canary.checking.structure import costs_of
from canary.constraints import Constraint, Joint, parts_of
from canary.constraints import from_dict as constraint_from_dict
from canary.constraints import to_dict as constraint_to_dict
from canary.environments import ENVIRONMENTS
from canary.environments.protocol import Environment, name_of_environment, settings_of
from canary.errors import CanaryError
from canary.host.references import label_of
from canary.values import Amount, Count, Steps, Whole, from_dict


@dataclass(frozen=True, kw_only=True)
class TrainingConfig:
    """Seeds, steps, batches and checkpoints of training."""

    seeds: tuple[Whole, ...] = (0, 1, 2, 3)
    """The seeds. The results of a seed do not depend on the others."""
    total_steps: Steps = 300_000
    """Environment steps per seed, summed over its parallel environments."""
    environments: Count = 5
    """Parallel environments per seed."""
    rollout_length: Count = 200
    """Steps of each environment per update."""
    stagger: bool = True
    """Start the first episodes at random times, so that episodes of fixed length do not all end in
    the same step."""
    fine_tuning: bool = False
    """Whether the policies were trained before. If so, the learning rate begins at half, and the price
    may be as high at once as at the end of a run. A warm start sets it."""
    chunk: Count = 10
    """Updates per call of the compiled program, and per update of the display. Results do not
    depend on it."""
    checkpoint_seconds: Amount = 30.0
    """Least time between two checkpoints."""
    keep_checkpoints: Whole = 0
    """Number of states to keep, evenly spaced over training. Their policies can be loaded by step."""
    seeds_per_device: Whole = 0
    """Seeds that one device trains at once, as one vectorised program; 0 chooses 1 on CPUs and all
    on accelerators."""
    merge_capacity: Whole = 0
    """On CPUs, a trust-region update evaluates networks once per distinct input if a batch has at
    most this many; 0: on every sample."""

    @property
    def batch(self) -> int:
        return self.environments * self.rollout_length

    @property
    def updates(self) -> int:
        return self.total_steps // self.batch


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """A whole run."""

    environment: Environment
    algorithm: Any
    """The settings of a method: one of `canary.ALGORITHMS`, or the user's own."""
    algorithm_name: str
    constraint: Constraint
    training: TrainingConfig = field(default_factory=TrainingConfig)
    preset: str = "fast"
    environment_changes: tuple[str, ...] = ()
    """Differences from the environment of training that the caller accepted."""

    @property
    def environment_name(self) -> str:
        return name_of_environment(self.environment)

    @property
    def clock(self) -> int | None:
        """The horizon, if networks see t / horizon."""
        return self.environment.horizon if self.algorithm.estimation.clock else None


def checked_config(config: RunConfig) -> RunConfig:
    """The same configuration, if its parts fit together. Single values were checked when set."""
    training, constraint = config.training, config.constraint
    _check_served(config.algorithm_name, config.algorithm, constraint)
    costs, limits = costs_of(config.environment), len(parts_of(constraint))
    if costs != limits:
        raise CanaryError(
            f"{config.environment_name} has {costs} cost{'s' * (costs > 1)}, and {constraint.text} "
            f"limits {limits}; give one limit for each cost, in order: "
            "constraint=[canary.Chance(...), canary.Mean(...)], or --limit A,B."
        )
    if not training.seeds or len(set(training.seeds)) < len(training.seeds):
        raise CanaryError(f"Give at least one seed, and each once, not {training.seeds}.")
    if training.total_steps < training.batch:
        raise CanaryError(
            f"total_steps ({training.total_steps}) is less than one update, which takes "
            f"{training.batch} steps ({training.environments} environments x "
            f"{training.rollout_length} steps); give more, or make an update smaller with "
            "training.environments or training.rollout_length."
        )
    critic = getattr(config.algorithm, "critic", None)
    if critic is not None and critic.minibatches > training.batch:
        raise CanaryError(
            f"algo.critic.minibatches ({critic.minibatches}) is more than the {training.batch} "
            "steps of a batch; take fewer."
        )
    return config


def _check_served(name: str, settings: Any, constraint: Constraint) -> None:
    """Raise if the algorithm cannot train under constraints of these kinds."""
    if isinstance(constraint, Joint):
        if not getattr(settings, "serves_several", False):
            raise CanaryError(
                f"{name} trains under one constraint only; for {constraint.text} take canary or "
                "ppo-lagrangian."
            )
    elif constraint.kind not in settings.serves:
        others = [other for other, kind in ALGORITHMS.items() if constraint.kind in kind.serves]
        raise CanaryError(
            f"{name} cannot train under a {constraint.kind} constraint, only under "
            f"{' or '.join(settings.serves)}; for {constraint.text} take "
            f"{' or '.join(other for other in others if other != 'ppo')} (docs/constraints.md)."
        )


def config_to_dict(config: RunConfig) -> dict[str, Any]:
    """Plain data that JSON can hold; tuples become lists."""
    return {
        "environment": {
            "name": config.environment_name,
            "settings": settings_of(config.environment),
        },
        "algorithm": {
            "name": config.algorithm_name,
            "method": method_name(type(config.algorithm)),
            "settings": _plain(config.algorithm),
        },
        "constraint": constraint_to_dict(config.constraint),
        "training": _plain(config.training),
        "preset": config.preset,
    }


def _plain(settings: Any) -> dict[str, Any]:
    return json.loads(json.dumps(asdict(settings)))


def config_from_dict(
    data: dict[str, Any],
    environment: Environment | None = None,
    changes: tuple[str, ...] = (),
    method: type | None = None,
) -> RunConfig:
    """Rebuild a configuration. `environment` and `method` are passed if they are the user's own;
    `canary.runs.environment` imports them once they are trusted. `changes` are the differences from
    the environment of training."""
    try:
        if environment is None:
            kind = _known(ENVIRONMENTS, data["environment"]["name"])
            environment = from_dict(kind, data["environment"]["settings"], "env")
        if method is None:
            method = _known(ALGORITHMS, data["algorithm"]["method"])
        config = RunConfig(
            environment=environment,
            algorithm=from_dict(method, data["algorithm"]["settings"], "algo"),
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
            f"{error} If another version of canary made the run (see manifest.json), use that version."
        ) from None
    return checked_config(config)


def _known(kinds: Mapping[str, Any], name: str) -> Any:
    if name not in kinds:
        raise CanaryError(
            f"{name!r:.60} is not one of canary's own: in Python, canary.load(RUN, environment)."
        )
    return kinds[name]


def method_name(kind: type) -> str:
    """The stored name of a method: one of canary's names, or `module:Class`."""
    return next((name for name, known in ALGORITHMS.items() if known is kind), label_of(kind))
