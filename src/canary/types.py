"""The records that functions pass to each other. A constraint value is safe if <= 0.

Costs are divided by the limit when they enter a rollout, so every cost-type quantity (costs, spent
cost, values, advantages, moments) is in units of the limit. Reports, the episode cost and the test
C > limit use raw units, so that rounding cannot flip a tie.
"""

from collections.abc import Callable, Sequence
from typing import TypeVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Shaped


class Terms(eqx.Module):
    """The limits and the progress of a run, as run-time values, so that one program serves all."""

    limit: Float[Array, "..."]
    """Several costs are the last axis, here and in the records below."""
    epsilon: Float[Array, "..."]
    """The constraint's share of episodes; 1 for a limit on the mean."""
    updates: Int[Array, "*seed"]
    """Updates of the whole run, over which learning rates are annealed."""
    iteration: Int[Array, "*seed"]
    """Updates done."""
    fine_tuning: bool = eqx.field(static=True, default=False)
    """Whether the policy was trained before."""

    @property
    def progress(self) -> Float[Array, "*seed"]:
        """Progress of the run, from 0 to 1. Fine-tuning is the second half of a longer run."""
        done = jnp.minimum(self.iteration / self.updates, 1)
        return (1 + done) / 2 if self.fine_tuning else done

    def by_cost(self) -> "list[Terms]":
        """The terms of each cost, for one seed."""
        return by_cost(self, self.limit.ndim > 0, lambda terms: (terms.limit, terms.epsilon))


Tree = TypeVar("Tree")


def by_cost(tree: Tree, is_several: bool, costs: Callable[[Tree], Sequence[Array]]) -> list[Tree]:
    """A tree for each of several costs, without the last axis of `costs(tree)`; for one cost, the
    tree itself."""
    if not is_several:
        return [tree]
    arrays = costs(tree)
    return [
        eqx.tree_at(costs, tree, [array[..., index] for array in arrays])
        for index in range(arrays[0].shape[-1])
    ]


class EpisodeEnds(eqx.Module):
    """The episodes that ended in a rollout; other entries (`ended` is false) do not count."""

    ended: Bool[Array, "*batch"]
    valid: Bool[Array, "*batch"]
    """False for a first episode that started at a later time; statistics ignore it."""
    reward: Float[Array, "*batch"]
    """Undiscounted return."""
    cost: Float[Array, "..."]
    """C in raw units, discounted by the cost discount."""
    length: Int[Array, "*batch"]
    terminated: Bool[Array, "*batch"]


class Rollout(eqx.Module):
    """A batch of on-policy experience; a single step has no time axis."""

    inputs: Float[Array, "*time env input"]
    """x_t = (s_t, g_t, y_t), the policy's input (paper eq. aug-state); a clock may replace g_t
    (`CostAccount.clock`)."""
    next_inputs: Float[Array, "*time env input"]
    """x_{t+1} before any reset."""
    action: Shaped[Array, "..."]
    reward: Float[Array, "*time env"]
    cost: Float[Array, "..."]
    spent: Float[Array, "..."]
    """y_t, the discounted cost spent before step t (paper eq. y-recursion)."""
    spent_raw: Float[Array, "..."]
    """y_t in raw units, so that rounding cannot decide whether it exceeds the limit."""
    discount: Float[Array, "*time env"]
    """g_t = cost_discount ** t."""
    terminated: Bool[Array, "*time env"]
    truncated: Bool[Array, "*time env"]
    episodes: EpisodeEnds

    @property
    def done(self) -> Bool[Array, "*time env"]:
        return self.terminated | self.truncated

    def by_cost(self) -> "list[Rollout]":
        """A rollout for each cost."""
        return by_cost(
            self,
            self.cost.ndim > self.reward.ndim,
            lambda each: (each.cost, each.spent, each.spent_raw, each.episodes.cost),
        )


Metrics = dict[str, Float[Array, "*update"]]


def numbered(metrics: Sequence[Metrics]) -> Metrics:
    """The metrics of several costs in one dictionary; `NAME_1` belongs to the first."""
    return {
        f"{name}_{index + 1}": value
        for index, each in enumerate(metrics)
        for name, value in each.items()
    }
