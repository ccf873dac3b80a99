"""Play fresh episodes of a frozen policy until the plan is fulfilled, the verdict is clear, or someone stops
it.

Episode i always uses the key fold_in(key, i): which episodes are played does not depend on the size of a
batch, and a certificate can be replayed. Costs come from the environment in raw units; a violation is C >
limit, strictly.
"""

import dataclasses
import hashlib
import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, PRNGKeyArray, PyTree

from canary.certification.plan import Plan, complete
from canary.certification.verdict import Assessment, Evidence, Method, assess, decide, probability_bounds
from canary.environments.protocol import Environment
from canary.errors import CanaryError
from canary.evaluation import play_episodes
from canary.networks import Policy
from canary.numerics.running_statistics import RunningStatistics
from canary.rollout import Augmentation
from canary.types import Chance, EpisodeEnds

Progress = Callable[[int, int | None], None]
"""Called after each batch with the episodes so far and the violations among them, or None where they must
stay unseen.
"""
Player = Callable[[Policy, RunningStatistics | None, PRNGKeyArray, Int[Array, ""]], EpisodeEnds]


@dataclass(frozen=True)
class Subject:
    """What is checked: an environment, how the policy sees its spent cost (as in training), and the
    constraint.
    """

    environment: Environment
    augmentation: Augmentation
    constraint: Chance


def certify(
    subject: Subject,
    policy: Policy,
    statistics: RunningStatistics | None = None,
    plan: Plan | None = None,
    *,
    key: PRNGKeyArray,
    progress: Progress | None = None,
    player: Player | None = None,
) -> tuple[Evidence, Assessment]:
    """Evidence and assessment of one policy; `player` saves compiling again for another policy of the same
    shape.

    With early stopping the test looks after each batch. A KeyboardInterrupt ends the episodes, and what was
    played gets its valid verdict: bounds that hold at any time do not mind who chose the time. A fixed plan
    shows nobody its violations before its end, so that the moment of an interruption cannot depend on them;
    it then uses these bounds too.
    """
    constraint = subject.constraint
    plan = complete(plan or Plan(), constraint)
    assert plan.episodes is not None
    play = player or make_player(subject, plan)
    rows: list[np.ndarray] = []
    played, violations, interrupted = 0, 0, False
    method: Method = "anytime" if plan.early_stop else "fixed"
    while played < plan.episodes and not interrupted:
        try:
            ends = jax.device_get(play(policy, statistics, key, jnp.asarray(played, jnp.int32)))
            rows.append(_rows(ends)[: plan.episodes - played])
            played += len(rows[-1])
            violations += int((rows[-1][:, 0] > constraint.limit).sum())
            if progress is not None:
                progress(played, violations if plan.early_stop else None)
        except KeyboardInterrupt:
            interrupted = played < plan.episodes
            method = "anytime" if interrupted else method
        if plan.early_stop:
            bounds = probability_bounds(violations, played, plan.corrected_confidence, method)
            if decide(*bounds, constraint.epsilon) != "UNDECIDED":
                break
    evidence = _evidence(rows, policy_hash(policy, statistics), method, interrupted)
    return evidence, assess(evidence, plan, constraint)


def make_player(subject: Subject, plan: Plan) -> Player:
    """One batch of whole episodes, those numbered from `start`, as a compiled program."""

    @jax.jit
    def play(
        policy: Policy, statistics: RunningStatistics | None, key: PRNGKeyArray, start: Int[Array, ""]
    ) -> EpisodeEnds:
        keys = jax.vmap(lambda index: jax.random.fold_in(key, index))(start + jnp.arange(plan.batch))
        return play_episodes(
            subject.environment,
            subject.augmentation,
            policy,
            statistics,
            keys,
            deterministic=plan.deterministic,
        )

    return play


def shift_grid(
    environment: Environment, shifts: Mapping[str, Sequence[int | float]]
) -> list[tuple[dict[str, int | float], Environment]]:
    """The environment under every combination of the given values of its numeric settings, with what was
    changed.
    """
    settings = environment_settings(environment)
    for name, values in shifts.items():
        known = [
            key for key, value in settings.items() if isinstance(value, int | float) and value is not True
        ]
        if name not in known:
            raise CanaryError(
                f"{type(environment).__name__} has no numeric setting {name!r} to shift; it has "
                f"{', '.join(known) or 'none'}."
            )
        if not values:
            raise CanaryError(f"The shift of {name} has no values; give some, for example {name}=0.1,0.2.")
    rows = []
    for values in itertools.product(*shifts.values()):
        changes = dict(zip(shifts, values, strict=True))
        shifted: Any = dataclasses.replace(cast(Any, environment), **changes)
        if shifted.observation_size != environment.observation_size:
            raise CanaryError(
                f"Changing {', '.join(changes)} changes what the policy sees, so it cannot be played."
            )
        rows.append((changes, shifted))
    return rows


def environment_settings(environment: Environment) -> dict[str, Any]:
    """The fields of the environment's dataclass as plain data."""
    fields = dataclasses.asdict(cast(Any, environment)) if dataclasses.is_dataclass(environment) else {}
    return json.loads(json.dumps(fields, default=str))


def policy_hash(policy: PyTree, statistics: PyTree = None) -> str:
    """SHA-256 of all arrays of the policy and its input normaliser: place in the tree, type, shape and bytes
    of each.
    """
    digest = hashlib.sha256()
    for name, tree in (("policy", policy), ("statistics", statistics)):
        for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
            array = np.asarray(leaf)
            array = np.ascontiguousarray(array.astype(array.dtype.newbyteorder("<")))
            digest.update(f"{name}{jax.tree_util.keystr(path)} {array.dtype.name} {array.shape}\n".encode())
            digest.update(array.tobytes())
    return digest.hexdigest()


def _rows(ends: EpisodeEnds) -> np.ndarray:
    """Cost, return and length of each episode, in the order of their keys."""
    rows = np.stack([np.asarray(part, float) for part in (ends.cost, ends.reward, ends.length)], -1)
    if not np.asarray(ends.ended).all():
        raise CanaryError(
            "An episode did not end at the environment's horizon; check it with `canary check-env`."
        )
    if not np.isfinite(rows).all():
        raise CanaryError(
            "An episode had a cost or return that is not finite; check it with `canary check-env`."
        )
    return rows


def _evidence(rows: list[np.ndarray], digest: str, method: Method, interrupted: bool) -> Evidence:
    table = np.concatenate(rows) if rows else np.zeros((0, 3))
    values, counts = np.unique(table[:, 0], return_counts=True)
    return Evidence(
        policy_sha256=digest,
        method=method,
        looks=len(rows),
        interrupted=interrupted,
        costs=tuple((float(value), int(count)) for value, count in zip(values, counts, strict=True)),
        return_mean=float(table[:, 1].mean()) if len(table) else None,
        length_mean=float(table[:, 2].mean()) if len(table) else None,
    )
