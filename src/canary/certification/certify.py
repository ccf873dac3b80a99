"""Play fresh episodes of a frozen policy until its verdict is clear, the plan is fulfilled, or
someone interrupts.

Episode i always uses the key fold_in(key, i): it does not depend on the size of a batch, and any
episode can be played again. Costs are in raw units; a violation is C > limit, strictly.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, PRNGKeyArray

from canary import evaluation
from canary.certification.plan import Plan, complete
from canary.certification.verdict import Assessment, PlayedEpisodes, assess, encode_costs, may_stop
from canary.constraints import Chance, Constraint, One, one_cost, parts_of
from canary.environments.protocol import Environment, explain_failures
from canary.errors import CanaryError
from canary.identity import identify, place_of, refuse_nonfinite
from canary.networks import Policy
from canary.numerics.costs import violates
from canary.numerics.running_statistics import RunningStatistics
from canary.rollout import CostAccount

Progress = Callable[[int, int | None], None]
"""Called after each batch with the episodes so far and the violations among them, or None if they
must stay unseen or mean nothing."""
Table = Float[np.ndarray, "episode column"]
"""A row per episode: costs, return, length."""
PlayRows = Callable[[np.ndarray], Table]
"""From episode numbers to their rows."""


def certify(
    environment: Environment,
    account: CostAccount,
    constraint: Constraint,
    policy: Policy,
    statistics: RunningStatistics | None = None,
    plan: Plan | None = None,
    *,
    key: PRNGKeyArray,
    progress: Progress | None = None,
) -> tuple[PlayedEpisodes, Assessment]:
    """Episodes and assessment of one policy under one constraint. The account says how the policy
    sees its spent cost, as in training."""
    one_cost(constraint, "certify()")
    plan = complete(plan or Plan(), constraint)
    identity = identify(policy, statistics, account, place_of(environment))
    refuse_nonfinite(identity)
    play = partial(make_player(environment, account, plan), policy, statistics, key)
    table = gather(play, plan, constraint, progress)
    (found,) = examine(table, identity.sha256, plan, constraint)
    return found


def make_player(environment: Environment, account: CostAccount, plan: Plan) -> Callable[..., Table]:
    """A compiled program: (policy, statistics, key, episode numbers) -> a row per episode."""
    play = evaluation.make_player(environment, account, deterministic=plan.deterministic)
    keys_of = jax.jit(jax.vmap(jax.random.fold_in, (None, 0)))

    def rows(policy: Policy, statistics: Any, key: PRNGKeyArray, numbers: np.ndarray) -> Table:
        keys = keys_of(key, jnp.asarray(numbers, jnp.int32))
        with explain_failures(environment):
            ends = jax.device_get(play(policy, statistics, keys))
        evaluation.refuse_faulty(ends)
        return np.column_stack([ends.cost, ends.reward, ends.length]).astype(float)

    return rows


def gather(
    play: PlayRows,
    plan: Plan,
    constraint: Constraint,
    progress: Progress | None = None,
    count: int | None = None,
) -> Table:
    """Play batch after batch by the plan, or exactly `count` episodes.

    With early stopping the test looks after each batch, and ends when every constraint has its
    verdict. So does a KeyboardInterrupt. A fixed plan shows no violations before its end, so that
    the moment of an interruption cannot depend on them.
    """
    parts, most = parts_of(constraint), plan.episodes if count is None else count
    assert most is not None
    table = np.zeros((0, len(parts) + 2))
    try:
        while len(table) < most and (count is not None or not _is_decided(table, plan, parts)):
            batch = play(np.arange(len(table), len(table) + plan.batch))
            table = np.concatenate([table, batch])[:most]
            if progress is not None:
                is_counted = plan.early_stop and isinstance(constraint, Chance)
                violations = int(violates(table[:, 0], parts[0].limit).sum())
                progress(len(table), violations if is_counted else None)
    except KeyboardInterrupt:
        if count is not None:  # a replay that is not over shows nothing
            raise
    return table


def examine(
    table: Table, policy_sha256: str, plan: Plan, constraint: Constraint
) -> list[tuple[PlayedEpisodes, Assessment]]:
    """The evidence about each constraint, and its assessment.

    Interrupted episodes get a valid verdict: anytime bounds hold whoever chose the time. A fixed
    plan that was interrupted uses them too.
    """
    parts, count = parts_of(constraint), len(table)
    assert plan.episodes is not None
    if count > plan.episodes:
        raise CanaryError(f"{count:,} episodes are more than the {plan.episodes:,} of the plan.")
    interrupted = count < plan.episodes and not _is_decided(table, plan, parts)
    *costs, returns, lengths = table.T
    found = []
    for part, own in zip(parts, costs, strict=True):
        played = PlayedEpisodes(
            policy_sha256=policy_sha256,
            method="anytime" if plan.early_stop or interrupted else "fixed",
            looks=_looks(table, plan),
            interrupted=interrupted,
            costs=encode_costs(own),
            return_mean=float(returns.mean()) if count else None,
            length_mean=float(lengths.mean()) if count else None,
        )
        found.append((played, assess(played, plan, part)))
    return found


def _is_decided(table: Table, plan: Plan, parts: tuple[One, ...]) -> bool:
    looks, pairs = _looks(table, plan), zip(parts, table.T, strict=False)
    return plan.early_stop and looks > 0 and all(may_stop(c, looks, plan, p) for p, c in pairs)


def _looks(table: Table, plan: Plan) -> int:
    return math.ceil(len(table) / plan.batch)
