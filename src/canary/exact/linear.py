"""The best expected return under one linear constraint on the law of the cost, solved exactly.

    max_pi J(pi)   subject to   E_pi[phi(C)] <= b.

J and E[phi(C)] are linear in the occupation measure. The attainable pairs (E[phi], J) are the convex
hull of those of deterministic policies on (time, state, spent), so the optimum mixes at most two of
them, drawn once before the episode. Column generation finds them: the best mixture of the known
policies has a multiplier lambda, the best response to lambda phi is a new policy, and by weak
duality

    max_pi { J - lambda E[phi(C)] } + lambda b

is an upper bound. It meets the mixture's value after finitely many policies.
"""

from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from jaxtyping import Float, Int

from canary.exact.distribution import CostLaw, cost_law, mix, visits
from canary.exact.mdp import FiniteMDP

TOLERANCE = 1e-10  # of the duality gap, relative to max(1, |return|)
MOST_COLUMNS = 1000  # about twenty are usual


@dataclass(frozen=True, eq=False)
class Column:
    """A deterministic policy, stored as the problem whose best response it is."""

    mdp: FiniteMDP = field(repr=False)
    penalty: Float[np.ndarray, "spent"] = field(repr=False)
    reward_weight: float
    law: CostLaw = field(repr=False)

    @property
    def actions(self) -> Int[np.ndarray, "time state spent"]:
        return best_response(self.mdp, self.penalty, self.reward_weight)[1]


@dataclass(frozen=True, eq=False)
class Optimum:
    """The best policy under a constraint, a mixture of columns, and a bound on all others."""

    value: float
    """The expected return of `policy`."""
    upper_bound: float
    """No policy that satisfies the constraint has a larger return."""
    multiplier: float
    columns: tuple[Column, ...] = field(default=(), repr=False)
    weights: tuple[float, ...] = ()

    @cached_property
    def law(self) -> CostLaw:
        return mix([column.law for column in self.columns], np.array(self.weights))

    @cached_property
    def policy(self) -> Float[np.ndarray, "time state spent action"]:
        """One randomised policy with this law. It plays each action as often as the mixture does
        there; where the mixture never comes, as its first policy does."""
        mdp, policies = self.columns[0].mdp, [column.actions for column in self.columns]
        pairs = zip(policies, self.weights, strict=True)
        measure = np.sum([weight * visits(mdp, policy) for policy, weight in pairs], axis=0)
        total = measure.sum(axis=-1, keepdims=True)
        chance = measure / np.where(total > 0, total, 1.0)
        return np.where(total > 0, chance, np.eye(mdp.actions)[policies[0]])


NOTHING = Optimum(-np.inf, -np.inf, np.inf)  # no policy is feasible


def maximise(
    mdp: FiniteMDP,
    penalty: Float[np.ndarray, "spent"],
    bound: float,
    pool: list[Column],
    *,
    cutoff: float = -np.inf,
    target: float = np.inf,
) -> Optimum:
    """Solve the problem above; stop once no policy can exceed `cutoff`, or once one exceeds `target`.

    `pool` holds known policies of the same process, from any constraint, and grows: related problems
    share one pool and compute only new policies.
    """
    if not pool:
        _price(mdp, np.zeros_like(penalty), 1.0, pool)
    best, upper_bound, multiplier = NOTHING, np.inf, None
    for _ in range(MOST_COLUMNS):
        best = _best_mixture(penalty, bound, pool)
        if best is NOTHING:
            smallest = _price(mdp, penalty, 0.0, pool).law.expectation(penalty)
            if smallest > bound + _slack(bound):
                return NOTHING
            continue
        if best.multiplier == multiplier:  # only rounding is left in the gap
            break
        multiplier = best.multiplier
        law = _price(mdp, best.multiplier * penalty, 1.0, pool).law
        dual = law.expected_return - best.multiplier * (law.expectation(penalty) - bound)
        upper_bound = min(upper_bound, dual)
        closed = upper_bound <= best.value + TOLERANCE * max(1.0, abs(best.value))
        if closed or upper_bound <= cutoff or best.value > target:
            break
    return replace(best, upper_bound=max(upper_bound, best.value))


def _slack(bound: float) -> float:
    return 1e-12 * max(1.0, abs(bound))


def _price(mdp: FiniteMDP, penalty: np.ndarray, reward_weight: float, pool: list[Column]) -> Column:
    _, actions = best_response(mdp, penalty, reward_weight)
    column = Column(mdp, penalty, reward_weight, cost_law(mdp, actions))
    pool.append(column)
    return column


def _best_mixture(penalty: np.ndarray, bound: float, pool: list[Column]) -> Optimum:
    """The best feasible mixture of one or two known policies, and its multiplier."""
    returns = np.array([column.law.expected_return for column in pool])
    charges = np.array([column.law.probabilities for column in pool]) @ penalty
    is_safe = charges <= bound + _slack(bound)
    inside, outside = np.flatnonzero(is_safe), np.flatnonzero(~is_safe)
    if not inside.size:
        return NOTHING
    # Mix each safe policy with the unsafe one that gains most return per charge.
    slopes = (returns[outside] - returns[inside, None]) / (charges[outside] - charges[inside, None])
    slope, room = slopes.max(axis=1, initial=0.0), np.maximum(bound - charges[inside], 0.0)
    values = returns[inside] + room * slope
    row = values.argmax()
    columns, weights = (pool[inside[row]],), (1.0,)
    if slope[row] > 0 and room[row] > 0:
        unsafe = outside[slopes[row].argmax()]
        share = float(room[row] / (charges[unsafe] - charges[inside[row]]))
        columns, weights = (*columns, pool[unsafe]), (1 - share, share)
    return Optimum(float(values[row]), np.inf, float(slope[row]), columns, weights)


def best_response(
    mdp: FiniteMDP, penalty: Float[np.ndarray, "spent"], reward_weight: float = 1.0
) -> tuple[float, Int[np.ndarray, "time state spent"]]:
    """The value and the policy that maximise w J(pi) - E_pi[phi(C)], by dynamic programming:

        V_t(s, k) = max_a E[w r + V_{t+1}(s', k + c)],        V_t(terminal, k) = V_H(s, k) = -phi(k).

    The maximum is over all policies, history-dependent and randomised ones included. The policy is
    deterministic, the first of equally good actions; unreachable levels hold action 0.
    """
    actions = np.zeros((mdp.horizon, mdp.states, len(mdp.support)), np.int16)
    reward = reward_weight * mdp.expected_reward[:, :, None]
    value = np.broadcast_to(-penalty, (mdp.states, len(penalty)))
    for time in reversed(range(mdp.horizon)):
        levels = mdp.levels_at(time)
        after = np.concatenate([value[:, step : step + levels] for step in mdp.steps_of_cost])
        choices = (mdp.kernel @ after).reshape(mdp.states, mdp.actions, levels) + reward
        actions[time, :, :levels] = choices.argmax(axis=1)
        value = np.where(mdp.terminal[:, None], -penalty[:levels], choices.max(axis=1))
    return float(mdp.initial @ value[:, 0]), actions
