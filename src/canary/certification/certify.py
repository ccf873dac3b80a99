"""Play fresh episodes of a frozen policy until its verdict is clear, the plan is fulfilled, or
someone interrupts.

Episode i always uses the key fold_in(key, i): it does not depend on the size of a batch, and any
episode can be played again. Costs are in raw units; a violation is C > limit, strictly.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray

from canary import evaluation
from canary.certification.plan import Plan, complete
from canary.certification.verdict import Assessment, PlayedEpisodes, assess, encode_costs, may_stop
from canary.constraints import Chance, Constraint, one_cost, parts_of
from canary.environments.protocol import Environment, explain_failures
from canary.identity import identify, place_of, refuse_nonfinite
from canary.networks import Policy
from canary.numerics.costs import violates
from canary.numerics.running_statistics import RunningStatistics
from canary.rollout import CostAccount

Progress = Callable[[int, int | None], None]
"""Called after each batch with the episodes so far and the violations among them, or None if they
must stay unseen or mean nothing."""
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
    progress: Progress | None = None,
) -> tuple[PlayedEpisodes, Assessment]:
    """Episodes and assessment of one policy under one constraint."""
    one_cost(subject.constraint, "certify()")
    plan = complete(plan or Plan(), subject.constraint)
    identity = identify(policy, statistics, subject.account, place_of(subject.environment))
    refuse_nonfinite(identity)
    play = partial(make_player(subject, plan), policy, statistics, key)
    (found,) = gather(play, plan, subject.constraint, identity.sha256, progress)
    return found


def make_player(subject: Subject, plan: Plan) -> Callable[..., np.ndarray]:
    """A compiled program: (policy, statistics, key, episode numbers) -> a row per episode."""
    play = evaluation.make_player(
        subject.environment, subject.account, deterministic=plan.deterministic
    )
    keys_of = jax.jit(jax.vmap(jax.random.fold_in, (None, 0)))

    def rows(
        policy: Policy,
        statistics: RunningStatistics | None,
        key: PRNGKeyArray,
        numbers: np.ndarray,
    ) -> np.ndarray:
        keys = keys_of(key, jnp.asarray(numbers, jnp.int32))
        with explain_failures(subject.environment):
            ends = jax.device_get(play(policy, statistics, keys))
        evaluation.refuse_faulty(ends)
        return np.column_stack([ends.cost, ends.reward, ends.length]).astype(float)

    return rows


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
    then uses the anytime bounds too. `interrupt_at` repeats an interruption after so many episodes.
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
            may_stop(table[:, index], looks, plan, part) for index, part in enumerate(parts)
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
        found.append((played, assess(played, plan, part)))
    return found
