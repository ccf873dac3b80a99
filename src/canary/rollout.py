"""Collect a batch of on-policy experience from parallel environments.

Each environment runs in a `Lane`, which adds the paper's augmented state (spent cost y_t and discount
g_t, eqs. y-recursion and aug-state) and the running sums of its episode. An episode may span batches.
"""

from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key, PRNGKeyArray, Shaped

from canary.environments.protocol import Environment, EnvironmentState
from canary.networks import Policy
from canary.numerics.costs import in_limits
from canary.numerics.running_statistics import RunningStatistics, normalise
from canary.types import EpisodeEnds, Rollout

# Largest spent cost that networks see, in limits
SPENT_CLIP = 10.0


@dataclass(frozen=True)
class CostAccount:
    """Limit, discount and clock, from which a policy's pace and spent-cost inputs follow."""

    limit: float | Float[Array, "..."] | Float[np.ndarray, "cost"]
    """A run-time value in training; one for each of several costs."""
    cost_discount: float
    clock: int | None = None
    """The horizon, if networks see the clock t / horizon instead of g_t, which is constant at discount
    1."""

    SIZE = 2
    """The `size` for one cost."""

    @property
    def size(self) -> int:
        """Entries that the account appends to an observation: g_t or the clock, and y_t of each
        cost."""
        return 1 + np.size(self.limit)

    def pace(self, time: Any, discount: Any) -> Any:
        """The networks' time input: t / horizon, or g_t."""
        return discount if self.clock is None else time / self.clock


class Lane(eqx.Module):
    """One environment and the running sums of its current episode."""

    environment: EnvironmentState
    spent: Float[Array, "..."]
    """y_t in raw units."""
    discount: Float[Array, "*env"]
    """g_t = cost_discount ** t."""
    reward: Float[Array, "*env"]
    length: Int[Array, "*env"]
    valid: Bool[Array, "*env"]

    def inputs(
        self, account: CostAccount, statistics: RunningStatistics | None
    ) -> Float[Array, "*env input"]:
        """The policy's input in this lane."""
        pace = account.pace(self.environment.time, self.discount)
        return policy_inputs(self.environment.observation, self.spent, pace, account, statistics)

    @property
    def ends(self) -> EpisodeEnds:
        """The episodes of the lanes; they count only if they ended."""
        state = self.environment
        ended = state.terminated | state.truncated
        return EpisodeEnds(
            ended, self.valid, self.reward, self.spent, self.length, state.terminated
        )


def start_lane(environment: Environment, key: PRNGKeyArray) -> Lane:
    """A lane after a reset, with spent cost 0."""
    zero = jnp.zeros(())
    state = environment.reset(key)
    spent = jnp.zeros(state.cost.shape)
    return Lane(state, spent, zero + 1, zero, jnp.zeros((), jnp.int32), jnp.array(True))


def start_lanes(environment: Environment, count: int, key: PRNGKeyArray, *, stagger: bool) -> Lane:
    """`count` lanes, started together or, if `stagger`, at random times of the episode clock.

    Episodes of fixed length that start together end together, so each batch would contain only one
    phase of the episode. A staggered first episode is marked invalid.
    """
    key_reset, key_time = jax.random.split(key)
    lanes = jax.vmap(lambda k: start_lane(environment, k))(jax.random.split(key_reset, count))
    if not stagger:
        return lanes
    time = jax.random.randint(
        key_time, (count,), 0, environment.horizon, lanes.environment.time.dtype
    )
    return eqx.tree_at(lambda lane: (lane.environment.time, lane.valid), lanes, (time, time == 0))


def policy_inputs(
    observation: Float[Array, "*env obs"],
    spent_raw: Float[Array, "..."],
    pace: Float[Array, "*env"],
    account: CostAccount,
    statistics: RunningStatistics | None,
) -> Float[Array, "*env input"]:
    """x = (s, g, y): observation (standardised if statistics are given), pace (`CostAccount.pace`),
    spent cost in limits. The only source of network inputs, in training and afterwards."""
    if statistics is not None:
        observation = normalise(statistics, observation)
    spent = jnp.clip(in_limits(spent_raw, account.limit), -SPENT_CLIP, SPENT_CLIP)
    spent = spent.reshape(*pace.shape, -1)  # one cost or several
    return jnp.concatenate([observation, pace[..., None], spent], -1)


def advance(
    environment: Environment, account: CostAccount, lane: Lane, action: Array, key: PRNGKeyArray
) -> Lane:
    """One environment step; y_{t+1} = y_t + g_t c_t."""
    state = environment.step(lane.environment, action, key)
    return Lane(
        environment=state,
        spent=lane.spent + lane.discount * state.cost,
        discount=lane.discount * account.cost_discount,
        reward=lane.reward + state.reward,
        length=lane.length + 1,
        valid=lane.valid,
    )


def collect(
    environment: Environment,
    account: CostAccount,
    policy: Policy,
    lanes: Lane,
    statistics: RunningStatistics | None,
    key: PRNGKeyArray,
    length: int,
) -> tuple[Lane, Rollout, Float[Array, "time env obs"]]:
    """Play `length` steps in every lane, with resets of finished ones. Also returns the raw
    observations."""
    count = lanes.spent.shape[0]

    def play(lanes: Lane, keys: Key[Array, "3"]):
        key_act, key_step, key_reset = keys
        inputs = lanes.inputs(account, statistics)
        action = policy(inputs).sample(key_act)
        moved = jax.vmap(lambda lane, a, k: advance(environment, account, lane, a, k))(
            lanes, action, jax.random.split(key_step, count)
        )
        step = transition(account, statistics, lanes, inputs, action, moved)
        done = step.episodes.ended

        # A reset may take longer than a step and is rarely needed.
        following = jax.lax.cond(
            done.any(), lambda: restart(environment, moved, done, key_reset), lambda: moved
        )
        return following, (step, lanes.environment.observation)

    lanes, (rollout, observations) = jax.lax.scan(play, lanes, jax.random.split(key, (length, 3)))
    return lanes, rollout, observations


def transition(
    account: CostAccount,
    statistics: RunningStatistics | None,
    before: Lane,
    inputs: Float[Array, "*time env input"],
    action: Shaped[Array, "..."],
    after: Lane,
) -> Rollout:
    """The record of a step of every lane, or of many steps along a first axis.

    `inputs` are the policy's inputs in the lanes `before` the step; `after` is before any reset.
    """
    state = after.environment
    return Rollout(
        inputs=inputs,
        next_inputs=after.inputs(account, statistics),
        action=action,
        reward=state.reward,
        cost=in_limits(state.cost, account.limit),
        spent=in_limits(before.spent, account.limit),
        spent_raw=before.spent,
        discount=before.discount,
        terminated=state.terminated,
        truncated=state.truncated,
        episodes=after.ends,
    )


def restart(
    environment: Environment, lanes: Lane, done: Bool[Array, "env"], key: PRNGKeyArray
) -> Lane:
    """Lanes in which finished episodes are replaced by fresh ones."""
    keys = jax.random.split(key, len(done))
    fresh = jax.vmap(lambda k: start_lane(environment, k))(keys)
    return select(done, fresh, lanes)


def select(which: Bool[Array, "env"], chosen: Lane, other: Lane) -> Lane:
    """Lane by lane, `chosen` where `which` holds and `other` elsewhere."""

    def choose(new: Array, old: Array) -> Array:
        return jnp.where(which.reshape(which.shape + (1,) * (new.ndim - 1)), new, old)

    return jax.tree.map(choose, chosen, other)
