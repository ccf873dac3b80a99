"""Play fresh episodes of a frozen policy until the plan is fulfilled, the verdict is clear, or
someone stops it.

Episode i always uses the key fold_in(key, i): which episodes are played does not depend on the size
of a batch, and a certificate can be replayed. Costs come from the environment in raw units; a
violation is C > limit, strictly.
"""

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, PRNGKeyArray

from canary import evaluation
from canary.certification import order
from canary.certification.betting import is_apart
from canary.certification.bounds import Look, Method, constraint_bounds, refuse_larger
from canary.certification.plan import Plan, complete, largest_cost
from canary.certification.verdict import Assessment, Evidence, assess, decide
from canary.constraints import Chance, Constraint, Mean
from canary.environments.failures import told_failures
from canary.environments.protocol import Environment
from canary.environments.settings import with_settings
from canary.errors import CanaryError
from canary.evaluation import absurd_numbers
from canary.identity import Identity, environment_settings, identify, place_of, refuse_nonfinite
from canary.networks import Policy
from canary.numerics.running_statistics import RunningStatistics
from canary.numerics.violations import violates
from canary.rollout import CostAccount
from canary.types import EpisodeEnds

Progress = Callable[[int, int | None], None]
"""Called after each batch with the episodes so far and the violations among them, or None where
they must stay unseen or mean nothing.
"""
Player = Callable[
    [Policy, RunningStatistics | None, PRNGKeyArray, Int[Array, "batch"]], EpisodeEnds
]
"""Plays the episodes of these numbers, a batch of them at once."""


@dataclass(frozen=True)
class Subject:
    """What is checked: an environment, how the policy sees its spent cost (as in training), and the
    constraint.
    """

    environment: Environment
    account: CostAccount
    constraint: Constraint


def certify(
    subject: Subject,
    policy: Policy,
    statistics: RunningStatistics | None = None,
    plan: Plan | None = None,
    *,
    key: PRNGKeyArray,
    identity: Identity | None = None,
    progress: Progress | None = None,
    player: Player | None = None,
) -> tuple[Evidence, Assessment]:
    """Evidence and assessment of one policy. `identity` says what the policy is, where more is
    known of it than is given here; `player` saves compiling again for another policy of the same
    shape.

    With early stopping the test looks after each batch. A KeyboardInterrupt ends the episodes, and
    what was played gets its valid verdict: bounds that hold at any time do not mind who chose the
    time. A fixed plan shows nobody its violations before its end, so that the moment of an
    interruption cannot depend on them; it then uses these bounds too.
    """
    constraint, environment = subject.constraint, subject.environment
    plan = complete(plan or Plan(), constraint)
    assert plan.episodes is not None
    if identity is None:
        identity = identify(policy, statistics, subject.account, place_of(environment))
    refuse_nonfinite(identity)
    play = player or make_player(subject, plan)
    rows: list[np.ndarray] = []
    played, interrupted, decided = 0, False, False
    while played < plan.episodes and not interrupted and not decided:
        try:
            numbers = played + jnp.arange(plan.batch, dtype=jnp.int32)
            with told_failures(environment):
                ends = jax.device_get(play(policy, statistics, key, numbers))
            rows.append(episode_rows(ends)[: plan.episodes - played])
            if progress is not None:
                is_counted = plan.early_stop and isinstance(constraint, Chance)
                violations = (
                    int(violates(_costs(rows), constraint.limit).sum()) if is_counted else None
                )
                progress(played + len(rows[-1]), violations)
        except KeyboardInterrupt:
            interrupted = True
        played = sum(map(len, rows))
        decided = plan.early_stop and is_decided(_costs(rows), len(rows), plan, constraint)
    interrupted = played < plan.episodes and not decided
    evidence = _evidence(rows, identity.sha256, plan, interrupted)
    return evidence, assess(evidence, plan, constraint)


def is_decided(
    costs: np.ndarray, looks: int, plan: Plan, constraint: Constraint, rounding: float = 0.0
) -> bool:
    """Whether a test that may stop at any time stops here; with a limit that is off by so little,
    if that is asked."""
    allowed, confidence = constraint.allowed * (1 + rounding), plan.corrected_confidence
    refuse_larger(costs, plan)
    if isinstance(constraint, Mean) and (not len(costs) or costs.min() >= 0):
        return is_apart(
            costs, constraint.limit, largest_cost(plan, constraint), confidence, allowed
        )
    bounds = constraint_bounds(constraint, costs, Look("anytime", looks), plan, confidence)
    return decide(*bounds, allowed) != "UNDECIDED"


def _costs(rows: list[np.ndarray]) -> np.ndarray:
    return np.concatenate([batch[:, 0] for batch in rows]) if rows else np.zeros(0)


def make_player(subject: Subject, plan: Plan) -> Player:
    """One batch of whole episodes, those of the given numbers, as a compiled program."""
    episodes = evaluation.make_player(
        subject.environment, subject.account, deterministic=plan.deterministic
    )
    keys_of = jax.jit(jax.vmap(jax.random.fold_in, (None, 0)))

    def play(
        policy: Policy,
        statistics: RunningStatistics | None,
        key: PRNGKeyArray,
        numbers: Int[Array, "batch"],
    ) -> EpisodeEnds:
        return episodes(policy, statistics, keys_of(key, numbers))

    return play


def shift_grid(
    environment: Environment, shifts: Mapping[str, Sequence[int | float]]
) -> list[tuple[dict[str, int | float], Environment]]:
    """The environment under every combination of the given values of its numeric settings, with
    what was changed.
    """
    settings = environment_settings(environment)
    for name, values in shifts.items():
        known = [
            key
            for key, value in settings.items()
            if isinstance(value, int | float) and not isinstance(value, bool)
        ]
        if name not in known:
            raise CanaryError(
                f"{type(environment).__name__} has no numeric setting {name!r} to shift; it has "
                f"{', '.join(known) or 'none'}."
            )
        if not values:
            raise CanaryError(
                f"The shift of {name} has no values; give some, for example {name}=0.1,0.2."
            )
    rows = []
    for values in itertools.product(*shifts.values()):
        changes = dict(zip(shifts, values, strict=True))
        if all(unchanged(settings[name], value) for name, value in changes.items()):
            raise CanaryError(
                f"The shift {', '.join(f'{name}={value:g}' for name, value in changes.items())} "
                "changes nothing: these are "
                "the environment's own settings, which are certified anyway; leave it out."
            )
        shifted = with_settings(environment, changes)
        if shifted.observation_size != environment.observation_size:
            raise CanaryError(
                f"Changing {', '.join(changes)} changes what the policy sees, so it cannot be "
                "played."
            )
        rows.append((changes, shifted))
    return rows


def unchanged(nominal: int | float, value: int | float) -> bool:
    """Whether a changed setting is, but for rounding, what it was before."""
    return math.isclose(nominal, value, rel_tol=1e-6)


def episode_rows(ends: EpisodeEnds) -> np.ndarray:
    """Cost, return and length of each episode, in the order of their keys."""
    rows = np.stack([np.asarray(part, float) for part in (ends.cost, ends.reward, ends.length)], -1)
    if not np.asarray(ends.ended).all():
        raise CanaryError(
            "An episode did not end at the environment's horizon, so it has no cost; repair the "
            "environment."
        )
    absurd = absurd_numbers(ends)
    if absurd is not None:
        raise CanaryError(f"An episode had {absurd[1]}; repair the environment.")
    return rows


def _evidence(rows: list[np.ndarray], digest: str, plan: Plan, interrupted: bool) -> Evidence:
    method: Method = "anytime" if plan.early_stop or interrupted else "fixed"
    table = np.concatenate(rows) if rows else np.zeros((0, 3))
    values, places, counts = np.unique(table[:, 0], return_inverse=True, return_counts=True)
    return Evidence(
        policy_sha256=digest,
        method=method,
        looks=len(rows),
        interrupted=interrupted,
        costs=tuple(
            (float(value), int(count)) for value, count in zip(values, counts, strict=True)
        ),
        order=order.encode(places),
        return_mean=float(table[:, 1].mean()) if len(table) else None,
        length_mean=float(table[:, 2].mean()) if len(table) else None,
    )
