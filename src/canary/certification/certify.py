"""Play fresh episodes of a frozen policy until its verdict is clear, the plan is complete, or Ctrl-C.

Episode i always has the key fold_in(key, i). So it does not depend on the size of a batch, and any
episode can be played again. Costs are in raw units; a violation is C > limit, strictly.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray

from canary import evaluation
from canary.certification.certificate import Result, Table, examine, is_decided
from canary.certification.plan import Plan, complete
from canary.constraints import Constraint, one_cost, parts_of
from canary.environments.protocol import Environment
from canary.identity import identify, refuse_nonfinite
from canary.networks import Policy
from canary.numerics.running_statistics import RunningStatistics
from canary.rollout import CostAccount

Progress = Callable[[int], None]
"""Called after each batch with the number of episodes. Violations stay hidden until the end, so
that nobody can stop because of them."""
PlayRows = Callable[[np.ndarray], Table]
"""Maps episode numbers to rows of a table."""


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
) -> Result:
    """The result of one policy under one constraint. `account` defines the policy's spent-cost
    input, as in training."""
    plan = complete(plan or Plan(), one_cost(constraint, "certify()"))
    identity = identify(policy, statistics, account, environment)
    refuse_nonfinite(identity)
    play = partial(make_player(environment, account, plan), policy, statistics, key)
    table, _ = gather(play, plan, constraint, progress)
    return examine(table, plan, constraint, policy_sha256=identity.sha256)[0]


def make_player(environment: Environment, account: CostAccount, plan: Plan) -> Callable[..., Table]:
    """A compiled program: (policy, statistics, key, episode numbers) -> a row per episode."""
    play = evaluation.make_player(environment, account, deterministic=plan.deterministic)
    keys_of = jax.jit(jax.vmap(jax.random.fold_in, (None, 0)))

    def rows(policy: Policy, statistics: Any, key: PRNGKeyArray, numbers: np.ndarray) -> Table:
        keys = keys_of(key, jnp.asarray(numbers, jnp.int32))
        ends = play(policy, statistics, keys)
        evaluation.refuse_faulty(ends)
        return np.column_stack([ends.cost, ends.reward, ends.length]).astype(float)

    return rows


def gather(
    play: PlayRows,
    plan: Plan,
    constraint: Constraint,
    progress: Progress | None = None,
    count: int | None = None,
) -> tuple[Table, bool]:
    """Play in batches according to the plan, or exactly `count` episodes. Returns their table, and
    whether a KeyboardInterrupt ended it.

    With early stopping, the test looks after each batch and stops when all constraints have verdicts.
    """
    most = plan.episodes if count is None else count
    assert most is not None
    table = np.zeros((0, len(parts_of(constraint)) + 2))
    try:
        while len(table) < most and (count is not None or not is_decided(table, plan, constraint)):
            batch = play(np.arange(len(table), len(table) + plan.batch))
            table = np.concatenate([table, batch])[:most]
            if progress is not None:
                progress(len(table))
    except KeyboardInterrupt:
        if count is not None:  # an interrupted replay proves nothing
            raise
        return table, True
    return table, False
