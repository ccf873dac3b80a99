"""The records that functions pass to each other. A constraint value is safe if <= 0.

Costs are divided by the limit where they enter a rollout, so every cost-type quantity (costs, spent
cost, values, advantages, moments) is in units of the limit. Reports, the episode cost and the test
C > limit stay in raw units, so that rounding cannot flip a tie.
"""

from collections.abc import Callable, Sequence
from typing import TypeVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Shaped


class Terms(eqx.Module):
    """The limits of a run and its progress: run-time values, so that one program serves all."""

    limit: Float[Array, "..."]
    """With several costs, here and below, the last axis goes over them."""
    epsilon: Float[Array, "..."]
    """The constraint's share of episodes: 1 under a constraint on the mean."""
    updates: Int[Array, "*seed"]
    """Of the whole run, over which learning rates are annealed."""
    iteration: Int[Array, "*seed"]
    """Updates done."""
    schedule_start: float = eqx.field(static=True, default=0.0)
    """Share of the schedules that is over before the first update."""

    @property
    def progress(self) -> Float[Array, "*seed"]:
        """Share of the schedules that is over."""
        done, start = jnp.minimum(self.iteration / self.updates, 1), self.schedule_start
        return start + (1 - start) * done if start else done

    def by_cost(self) -> "list[Terms]":
        """The terms of each cost, of one seed."""
        return by_cost(self, self.limit.ndim > 0, lambda terms: (terms.limit, terms.epsilon))


Tree = TypeVar("Tree")


def by_cost(tree: Tree, is_several: bool, costs: Callable[[Tree], Sequence[Array]]) -> list[Tree]:
    """The tree as each of several costs sees it: without the last axis of `costs(tree)`. With one
    cost, the tree itself."""
    if not is_several:
        return [tree]
    arrays = costs(tree)
    return [
        eqx.tree_at(costs, tree, [array[..., index] for array in arrays])
        for index in range(arrays[0].shape[-1])
    ]


class EpisodeEnds(eqx.Module):
    """The episodes that ended in a rollout: entries count only where `ended` holds."""

    ended: Bool[Array, "*batch"]
    valid: Bool[Array, "*batch"]
    """False for a first episode that started in mid-clock; it enters no statistic."""
    reward: Float[Array, "*batch"]
    """Undiscounted return."""
    cost: Float[Array, "..."]
    """C in raw units, discounted by the cost discount."""
    length: Int[Array, "*batch"]
    terminated: Bool[Array, "*batch"]


class Rollout(eqx.Module):
    """A batch of on-policy experience; that of a single step has no time axis."""

    inputs: Float[Array, "*time env input"]
    """x_t = (s_t, g_t, y_t), what the policy sees (paper eq. aug-state); a clock may stand for g_t
    (`CostAccount.clock`)."""
    next_inputs: Float[Array, "*time env input"]
    """x_{t+1} before any reset."""
    action: Shaped[Array, "..."]
    reward: Float[Array, "*time env"]
    cost: Float[Array, "..."]
    spent: Float[Array, "..."]
    """y_t, the discounted cost spent before step t (paper eq. y-recursion)."""
    spent_raw: Float[Array, "..."]
    """y_t in raw units: the rounding of a division must not decide whether it exceeds the limit."""
    discount: Float[Array, "*time env"]
    """g_t = cost_discount ** t."""
    terminated: Bool[Array, "*time env"]
    truncated: Bool[Array, "*time env"]
    episodes: EpisodeEnds

    @property
    def done(self) -> Bool[Array, "*time env"]:
        return self.terminated | self.truncated

    def by_cost(self) -> "list[Rollout]":
        """The rollout as each cost sees it."""
        return by_cost(
            self,
            self.cost.ndim > self.reward.ndim,
            lambda each: (each.cost, each.spent, each.spent_raw, each.episodes.cost),
        )


Metrics = dict[str, Float[Array, "*update"]]


def numbered(metrics: Sequence[Metrics]) -> Metrics:
    """The metrics of several costs in one dictionary: `NAME_1` is of the first."""
    return {
        f"{name}_{index + 1}": value
        for index, each in enumerate(metrics)
        for name, value in each.items()
    }
