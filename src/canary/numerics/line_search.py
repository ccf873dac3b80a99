"""Backtracking along a trust-region step, and the rule that decides which point may be kept.

The step of `trust_region` solves a model of eq:varcpo-constraint. As in CPO, the surrogates
themselves decide: of θ = θ_k + shrinkʲ s for j = 0, 1, ..., the first that satisfies them is taken.
What must be satisfied depends on the tier of eq:recovery that produced the step:

| tier                                  | reward | constraints, with Δ = L(θ) - L(θ_k)               |
|---------------------------------------|--------|---------------------------------------------------|
| nominal, every c_i < 0                | Δ >= 0 | Δ_i <= -c_i for each i: stay feasible             |
| nominal, some c_i >= 0                | free   | Δ_i <= max(-c_i, 0) for each i                    |
| bound restoration                     | free   | Δ_B <= 0 and Δ_μ <= max(-c_μ, 0)                  |
| mean restoration                      | free   | Δ_μ <= 0                                          |

In every row all numbers must be finite, and the mean KL divergence within the radius.
"""

from collections.abc import Callable
from typing import Generic, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Float, Int

from canary.numerics.tiers import Tier

Evaluation = TypeVar("Evaluation")


class Candidate(eqx.Module):
    """How the surrogates at a trial point differ from those at the start; constraints as (bound,
    mean)."""

    reward_change: Float[Array, ""]
    constraint_changes: Float[Array, "constraints"]
    kl: Float[Array, ""]


class LineSearchResult(eqx.Module, Generic[Evaluation]):
    """The point to continue from. If none was accepted: the start, bit for bit, and a zero
    `evaluation`."""

    point: Float[Array, "params"]
    accepted: Bool[Array, ""]
    attempts_used: Int[Array, ""]
    evaluation: Evaluation


def backtrack(
    evaluate: Callable[[Float[Array, "params"]], Evaluation],
    accept: Callable[[Evaluation], Bool[Array, ""]],
    start: Float[Array, "params"],
    step: Float[Array, "params"],
    *,
    shrink: float = 0.8,
    attempts: int = 10,
) -> LineSearchResult[Evaluation]:
    """The first of start + shrinkʲ · step, 0 <= j < attempts, that `accept` takes; else the
    start."""

    def trial(index: Int[Array, ""]) -> Float[Array, "params"]:
        return start + jnp.asarray(shrink, step.dtype) ** index * step

    def unfinished(state: tuple) -> Bool[Array, ""]:
        index, accepted, _ = state
        return ~accepted & (index < attempts)

    def attempt(state: tuple) -> tuple:
        index, _, _ = state
        evaluation = evaluate(trial(index))
        return index + 1, accept(evaluation), evaluation

    evaluate = jax.jit(evaluate, inline=True)  # traced once, for its shapes and for the loop
    nothing = jax.tree.map(
        lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), jax.eval_shape(evaluate, start)
    )
    used, accepted, evaluation = jax.lax.while_loop(
        unfinished, attempt, (jnp.zeros((), jnp.int32), jnp.asarray(False), nothing)
    )
    return LineSearchResult(
        point=jnp.where(accepted, trial(used - 1), start),
        accepted=accepted,
        attempts_used=used,
        evaluation=jax.tree.map(
            lambda found, zero: jnp.where(accepted, found, zero), evaluation, nothing
        ),
    )


def acceptable(
    candidate: Candidate,
    *,
    tier: Int[Array, ""],
    values: Float[Array, "constraints"],
    radius: ArrayLike,
) -> Bool[Array, ""]:
    """Whether a trial point may be kept, by the row of the table that the tier selects. `values`
    are the constraint values c at the start, (bound,) or (bound, mean)."""
    changes = candidate.constraint_changes
    within_slack = changes <= jnp.maximum(-values, 0)
    started_feasible = jnp.all(values < 0)
    by_tier = {
        Tier.NOMINAL: jnp.all(within_slack) & (~started_feasible | (candidate.reward_change >= 0)),
        Tier.BOUND_RESTORATION: (changes[0] <= 0) & jnp.all(within_slack[1:]),
        Tier.MEAN_RESTORATION: changes[-1] <= 0,
        Tier.NO_STEP: jnp.asarray(False),
    }
    finite = (
        jnp.isfinite(candidate.reward_change)
        & jnp.all(jnp.isfinite(changes))
        & jnp.isfinite(candidate.kl)
    )
    return jnp.stack([by_tier[each] for each in Tier])[tier] & finite & (candidate.kl <= radius)
