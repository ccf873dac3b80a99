"""Play fresh episodes of a frozen policy until its verdict is clear, the plan is fulfilled, or
someone interrupts.

Episode i always uses the key fold_in(key, i): it does not depend on the size of a batch, and any
episode can be played again. Costs are in raw units; a violation is C > limit, strictly.
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
from canary.certification.plan import Plan, complete, plan_for
from canary.certification.verdict import Assessment, PlayedEpisodes, assess, encode_costs, may_stop
from canary.constraints import Chance, Constraint, one_cost, parts_of
from canary.environments.protocol import Environment, explain_failures, with_settings
from canary.errors import CanaryError, nearest
from canary.identity import Identity, environment_settings, identify, place_of, refuse_nonfinite
from canary.networks import Policy
from canary.numerics.running_statistics import RunningStatistics
from canary.numerics.violations import violates
from canary.rollout import CostAccount
from canary.types import EpisodeEnds

LARGEST_SETTING = 2**31 - 1  # environments count in 32-bit integers

Progress = Callable[[int, int | None], None]
"""Called after each batch with the episodes so far and the violations among them, or None if they
must stay unseen or mean nothing."""
Player = Callable[
    [Policy, RunningStatistics | None, PRNGKeyArray, Int[Array, "batch"]], EpisodeEnds
]
"""Plays the episodes with these numbers, a batch at once."""
PlayRows = Callable[[np.ndarray], np.ndarray]
"""From episode numbers to a row per episode: costs, return, length."""


@dataclass(frozen=True)
class Subject:
    """What is certified: an environment, how the policy sees its spent cost (as in training), and
    the constraint."""

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
    interrupt_at: int | None = None,
) -> tuple[PlayedEpisodes, Assessment]:
    """Episodes and assessment of one policy. `identity` says more about the policy than its arrays
    do; `player` saves compiling again for another policy of the same shape; `interrupt_at` repeats
    an interruption after so many episodes."""
    one_cost(subject.constraint, "certify()")
    (found,) = certify_each(
        subject, policy, statistics, plan, key=key, identity=identity, progress=progress,
        player=player, interrupt_at=interrupt_at,
    )  # fmt: skip
    return found


def certify_each(
    subject: Subject,
    policy: Policy,
    statistics: RunningStatistics | None = None,
    plan: Plan | None = None,
    *,
    key: PRNGKeyArray,
    identity: Identity | None = None,
    progress: Progress | None = None,
    player: Player | None = None,
    interrupt_at: int | None = None,
) -> list[tuple[PlayedEpisodes, Assessment]]:
    """The same for each constraint on the same episodes."""
    plan = complete(plan or Plan(), subject.constraint)
    if identity is None:
        identity = identify(policy, statistics, subject.account, place_of(subject.environment))
    refuse_nonfinite(identity)
    play = player or make_player(subject, plan)

    def rows(numbers: np.ndarray) -> np.ndarray:
        with explain_failures(subject.environment):
            ends = jax.device_get(play(policy, statistics, key, jnp.asarray(numbers, jnp.int32)))
        return episode_rows(ends)

    return gather(rows, plan, subject.constraint, identity.sha256, progress, interrupt_at)


def gather(
    play: PlayRows,
    plan: Plan,
    constraint: Constraint,
    policy_sha256: str,
    progress: Progress | None = None,
    interrupt_at: int | None = None,
) -> list[tuple[PlayedEpisodes, Assessment]]:
    """Play batch after batch by the plan, and assess each constraint; early stopping waits for all
    of them.

    With early stopping the test looks after each batch. A KeyboardInterrupt ends the episodes, and
    those played get a valid verdict: anytime bounds hold whoever chose the time. A fixed plan shows
    no violations before its end, so that the moment of an interruption cannot depend on them; it
    then uses the anytime bounds too.
    """
    assert plan.episodes is not None
    parts = parts_of(constraint)
    table = np.zeros((0, len(parts) + 2))
    looks, interrupted, decided = 0, False, False
    while len(table) < plan.episodes and not interrupted and not decided:
        try:
            first = len(table)
            if interrupt_at is not None and first >= interrupt_at:
                raise KeyboardInterrupt
            batch = play(np.arange(first, first + plan.batch))[: plan.episodes - first]
            table, looks = np.concatenate([table, batch]), looks + 1
            if progress is not None:
                is_counted = plan.early_stop and isinstance(constraint, Chance)
                violates_it = violates(table[:, 0], parts[0].limit)
                progress(len(table), int(violates_it.sum()) if is_counted else None)
        except KeyboardInterrupt:
            interrupted = True
        decided = plan.early_stop and all(
            may_stop(table[:, index], looks, plan_for(plan, part), part)
            for index, part in enumerate(parts)
        )
    interrupted = len(table) < plan.episodes and not decided
    *costs, returns, lengths = table.T
    found = []
    for part, own in zip(parts, costs, strict=True):
        played = PlayedEpisodes(
            policy_sha256=policy_sha256,
            method="anytime" if plan.early_stop or interrupted else "fixed",
            looks=looks,
            interrupted=interrupted,
            costs=encode_costs(own),
            return_mean=float(returns.mean()) if len(table) else None,
            length_mean=float(lengths.mean()) if len(table) else None,
        )
        found.append((played, assess(played, plan_for(plan, part), part)))
    return found


def make_player(subject: Subject, plan: Plan) -> Player:
    """One batch of whole episodes, those with the given numbers, as a compiled program."""
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


def episode_rows(ends: EpisodeEnds) -> np.ndarray:
    """Costs, return and length of each episode, in the order of their keys."""
    evaluation.refuse_faulty(ends)
    columns = (np.asarray(part, float) for part in (ends.cost, ends.reward, ends.length))
    return np.column_stack(list(columns))


def shift_grid(
    environment: Environment, shifts: Mapping[str, Sequence[int | float]]
) -> list[tuple[dict[str, int | float], Environment]]:
    """The environment under every combination of the given values of its numeric settings, with
    what was changed."""
    settings = environment_settings(environment)
    known = [name for name, value in settings.items() if type(value) in (int, float)]
    for name, values in shifts.items():
        if name not in known:
            raise CanaryError(
                f"{type(environment).__name__} has no numeric setting {name!r} to "
                f"shift{nearest(name, known)}"
            )
        if not values:
            raise CanaryError(
                f"The shift of {name} has no values; give some, for example {name}=0.1,0.2."
            )
        if too_large := [value for value in values if not abs(value) < LARGEST_SETTING]:
            raise CanaryError(
                f"The shift {name}={too_large[0]:g} is too large; a setting must be below "
                f"{LARGEST_SETTING:,}."
            )
    rows = []
    for values in itertools.product(*shifts.values()):
        changes = dict(zip(shifts, values, strict=True))
        if all(
            math.isclose(settings[name], value, rel_tol=1e-6) for name, value in changes.items()
        ):
            raise CanaryError(
                f"The shift {', '.join(f'{name}={value:g}' for name, value in changes.items())} "
                "changes nothing: these are the environment's own settings, which are certified "
                "anyway; leave it out."
            )
        shifted = with_settings(environment, changes)
        if shifted.observation_size != environment.observation_size:
            raise CanaryError(
                f"Changing {', '.join(changes)} changes what the policy sees, so it cannot be "
                "played."
            )
        rows.append((changes, shifted))
    return rows
