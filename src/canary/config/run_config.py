"""The configuration of a run: an environment, an algorithm, a constraint, and sizes of training."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from canary.algorithms import ALGORITHMS
from canary.checking.structure import costs_of
from canary.constraints import CONSTRAINTS, Constraint, Joint, One, parts_of
from canary.environments.protocol import Environment
from canary.errors import CanaryError
from canary.values import Amount, Count, Steps, Whole


@dataclass(frozen=True, kw_only=True)
class TrainingConfig:
    """Seeds, steps, batches and checkpoints of training."""

    seeds: tuple[Whole, ...] = (0, 1, 2, 3)
    """Which seeds. Seed i gives the same numbers whatever runs beside it."""
    total_steps: Steps = 300_000
    """Environment steps per seed, over all its parallel environments."""
    environments: Count = 5
    """Parallel environments per seed."""
    rollout_length: Count = 200
    """Steps of each environment per update."""
    stagger: bool = True
    """Start the first episodes at random times, so that episodes of fixed length do not all end in
    the same step."""
    chunk: Count = 10
    """Updates per call of the compiled program; the display moves once per chunk. It does not change
    results."""
    checkpoint_seconds: Amount = 30.0
    """Least time between two checkpoints."""
    keep_checkpoints: Whole = 0
    """Number of states to keep, evenly spaced over training; their policies can be loaded by step."""
    seeds_per_device: Whole = 0
    """Seeds that one device trains at once, as one vectorised program; 0 chooses 1 on CPUs and all
    on accelerators."""
    merge_capacity: Whole = 0
    """On CPUs, evaluate networks once per distinct input where a batch has at most this many; 0
    turns it off."""

    @property
    def batch(self) -> int:
        return self.environments * self.rollout_length

    @property
    def updates(self) -> int:
        return self.total_steps // self.batch


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """A whole run. `environment` is the environment itself: a frozen dataclass whose fields are its
    settings."""

    environment: Environment
    environment_name: str
    algorithm: Any
    """The settings of a method: one of `canary.ALGORITHMS`, or the user's own."""
    algorithm_name: str
    constraint: Constraint
    training: TrainingConfig = field(default_factory=TrainingConfig)
    preset: str = "fast"
    environment_changes: tuple[str, ...] = ()
    """How the environment differs from that of training, if the caller accepted a change."""

    @property
    def clock(self) -> int | None:
        """The horizon, if networks see t / horizon."""
        return self.environment.horizon if self.algorithm.estimation.clock else None


def checked(config: RunConfig) -> RunConfig:
    """The same configuration, if its parts fit together; single values are checked where they are
    set."""
    training, constraint = config.training, config.constraint
    _check_served(config.algorithm_name, config.algorithm, constraint)
    costs, limits = costs_of(config.environment), len(parts_of(constraint))
    if costs != limits:
        raise CanaryError(
            f"{config.environment_name} has {costs} {'costs' if costs > 1 else 'cost'}, and "
            f"{constraint.text} limits {limits}; give one limit for each cost, in order: "
            "constraint=[canary.Chance(...), canary.Mean(...)], or --limit A,B."
        )
    if not training.seeds:
        raise CanaryError("At least one seed is needed.")
    if len(set(training.seeds)) < len(training.seeds):
        raise CanaryError(f"Seeds must be different whole numbers, not {training.seeds}.")
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


CHOICES = (
    "canary.Chance(limit=..., epsilon=...), canary.Mean(limit=...) or canary.CVaR(limit=..., "
    "epsilon=...)"
)
Said = Mapping[str, Any] | Constraint | Sequence[One] | None
"""A constraint, a list of them for several costs, or some of `kind`, `limit` and `epsilon`, each a
value or a list."""


def complete(said: Said, suggested: Any, environment: str) -> Constraint:
    """The constraint; what was left out comes from the environment's suggestion."""
    if isinstance(said, One | Joint):
        return said
    if isinstance(said, list | tuple):
        return said[0] if len(said) == 1 and isinstance(said[0], One) else Joint(tuple(said))
    if isinstance(suggested, list | tuple):
        suggested = Joint(tuple(suggested))
    if not isinstance(suggested, One | Joint | None):
        raise CanaryError(
            f"The default_constraint of {environment} must be {CHOICES}, not {suggested!r:.60}."
        )
    if not isinstance(said, Mapping | None) or not {*(said or ())} <= {"kind", "limit", "epsilon"}:
        raise CanaryError(f"The constraint must be {CHOICES}, not {said!r:.60}.")

    def listed(name: str) -> tuple[Any, ...]:
        value = (said or {}).get(name)
        if value is None:
            return ()
        return tuple(value) if isinstance(value, list | tuple) else (value,)

    kinds, limits, epsilons = map(listed, ("kind", "limit", "epsilon"))
    own: tuple[One | None, ...] = () if suggested is None else parts_of(suggested)
    count = len(own) if len(own) > 1 else max(len(kinds), len(limits), 1)
    if len(own) != count:
        own = (None,) * count
    kinds = kinds or tuple("chance" if part is None else part.kind for part in own)
    kinds = kinds * count if len(kinds) == 1 else kinds
    tails = sum(kind != "mean" for kind in kinds)
    limits, epsilons = limits or (None,) * count, epsilons or (None,) * tails
    if not (len(kinds) == len(limits) == count and len(epsilons) == tails):
        raise CanaryError(
            f"{environment} needs {count} limits, a kind for all or for each, and an epsilon for "
            f"each but a mean, which has no epsilon; there are {len(limits)} limits, {len(kinds)} "
            f"kinds and {len(epsilons)} epsilons."
        )
    rest = iter(epsilons)
    parts = tuple(
        _one(kind, limit, None if kind == "mean" else next(rest), suggestion, environment)
        for kind, limit, suggestion in zip(kinds, limits, own, strict=True)
    )
    return parts[0] if count == 1 else Joint(parts)


def _one(kind: Any, limit: Any, epsilon: Any, suggested: One | None, environment: str) -> One:
    if kind not in CONSTRAINTS:
        raise CanaryError(f"The constraint must be one of {', '.join(CONSTRAINTS)}, not {kind!r}.")
    values = {"limit": limit} if kind == "mean" else {"limit": limit, "epsilon": epsilon}
    for name, value in values.items():
        if value is None and not hasattr(suggested, name):
            raise CanaryError(
                f"{environment} has no default {name} for a {kind} constraint: give the {name} "
                f"(--{name}), or pass constraint={CHOICES}."
            )
        values[name] = getattr(suggested, name) if value is None else value
    return CONSTRAINTS[kind](**values)


def _check_served(name: str, settings: Any, constraint: Constraint) -> None:
    """Raise a sentence if the algorithm cannot train under constraints of these kinds."""
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
