"""The best expected return under a tail-risk constraint, solved exactly: the ground truth for
learning.

**One linear constraint** on the law of the cost C:

    max_pi J(pi)   subject to   E_pi[phi(C)] <= b.

J and E[phi(C)] are linear in the occupation measure. The attainable pairs (E[phi], J) are the
convex hull of the pairs of deterministic policies on (time, state, spent), so the optimum mixes at
most two such policies, with one draw before the episode. Column generation finds them: the best
mixture of the known policies has a multiplier lambda, the best response to lambda phi is a new
policy, and by weak duality

    max_pi { J - lambda E[phi(C)] } + lambda b

is an upper bound. It equals the mixture's value after finitely many policies.

**Tail-risk constraints**, with l the limit and beta = 1/epsilon - 1:

    VaR       P(C > l) <= epsilon                                                           (eq:var-bound)
    CVaR      for some eta:  E[(C - eta)^+] <= epsilon (l - eta)                (eq:rockafellar, eq:cvar-opt)
    Cantelli  for some m:    beta E[(C - m)^2] + 2 (l - m) E[C - m] <= (l - m)^2      (eq:cantelli-objective)

For a fixed eta or m each is one linear constraint; a search in one dimension remains. For CVaR the
best eta is a cost level at most l, so all such levels are tried. The Cantelli line is the paper's
B(pi) <= 0 with both squares replaced by tangents at m,

    sigma^2 <= E[(C - m)^2]        and        (l - mu)^2 >= (l - m)^2 - 2 (l - m) (mu - m),

with equality at m = mu. So every m <= l gives only safe policies (mu <= (l + m) / 2 <= l follows),
and m = mu is exact.

With a dead zone d, X = phi_d(C / l) replaces C and 1 replaces l (`canary.numerics.costs`).
"""

import heapq
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise

import numpy as np
from jaxtyping import Float, Int

from canary.errors import CanaryError
from canary.exact.distribution import CostLaw, bounded_variable, cost_law, mix, visits
from canary.exact.mdp import FiniteMDP
from canary.values import Amount, PositiveShare, checked

TOLERANCE = 1e-10  # of the duality gap, relative to max(1, |return|)
MOST_COLUMNS = 1000  # usually about twenty suffice
CANTELLI_GAP = 1e-6  # at which the search ends, relative to max(1, |return|)


class Infeasible(CanaryError):
    """No policy satisfies the constraint."""


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
    """The best policy under a constraint, as a mixture of columns, and a bound on all policies."""

    value: float
    """The expected return of `policy`."""
    upper_bound: float
    """An upper bound on the return of all policies that satisfy the constraint."""
    multiplier: float
    columns: tuple[Column, ...] = field(default=(), repr=False)
    weights: tuple[float, ...] = ()

    @cached_property
    def law(self) -> CostLaw:
        return mix([column.law for column in self.columns], np.array(self.weights))

    @cached_property
    def policy(self) -> Float[np.ndarray, "time state spent action"]:
        """One randomised policy with this law. Its action probabilities are the mixture's; where
        the mixture never comes, those of its first policy."""
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

    `pool` holds known policies of the same process, for any constraint. New policies are added, so
    related problems with a common pool compute each policy once.
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
        if best.multiplier == multiplier:  # the gap is only rounding
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
    # Mix each safe policy with the unsafe one that gains the most return per charge.
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

    The maximum is over all policies, including history-dependent and randomised ones. The policy is
    deterministic and takes the first of equally good actions; unreachable levels have action 0.
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


@checked
def best_under_var(
    mdp: FiniteMDP, limit: Amount, epsilon: PositiveShare, pool: list[Column] | None = None
) -> Optimum:
    """max J subject to P(C > limit) <= epsilon."""
    pool = [] if pool is None else pool
    return _feasible(maximise(mdp, (mdp.support > limit).astype(float), epsilon, pool))


@checked
def best_under_cvar(
    mdp: FiniteMDP, limit: Amount, epsilon: PositiveShare, pool: list[Column] | None = None
) -> Optimum:
    """max J subject to CVaR_epsilon(C) <= limit."""
    pool = [] if pool is None else pool
    best, upper_bound = NOTHING, -np.inf
    # Small epsilons have large etas, and a good first solution prunes the others.
    for eta in mdp.support[mdp.support <= limit][::-1]:
        excess = np.maximum(mdp.support - eta, 0.0)
        solution = maximise(mdp, excess, epsilon * (limit - eta), pool, cutoff=best.value)
        upper_bound = max(upper_bound, solution.upper_bound)
        best = max(best, solution, key=lambda one: one.value)
    return _feasible(best, upper_bound)


@checked
def best_under_cantelli(
    mdp: FiniteMDP,
    limit: Amount,
    epsilon: PositiveShare,
    pool: list[Column] | None = None,
    *,
    dead_zone: float | None = None,
) -> Optimum:
    """max J subject to B <= 0 and E[X] <= b, by branch and bound over the mean of X.

    (X, b) is (C, limit) or, with a dead zone, (phi_d(C / limit), 1). For policies with mean in
    [low, high], a chord of mu^2 instead of its tangent relaxes the constraint: it adds
    (high - low)^2 / (4 epsilon) to the tangent's bound at the midpoint. Intervals whose relaxed
    optimum is no better than the best known policy are dropped, the others are halved. So the
    optimum is global, with a known gap.
    """
    pool = [] if pool is None else pool
    variable, ceiling = bounded_variable(mdp.support, limit, dead_zone)
    highest = ceiling
    if dead_zone is not None:
        # The largest mean with P(X >= 1) <= epsilon. If X is always 1, B = 0 but the policy is unsafe
        highest = float(epsilon + (1 - epsilon) * variable[variable < 1].max())

    def tangent(mean: float) -> tuple[Float[np.ndarray, "spent"], float]:
        deviation, gap = variable - mean, ceiling - mean
        return (1 / epsilon - 1) * deviation**2 + 2 * gap * deviation, gap**2

    edges = np.linspace(0.0, highest, 9).tolist()
    queue = [(-np.inf, *ends) for ends in pairwise(edges)]
    best, upper_bound = NOTHING, -np.inf
    while queue:
        _, low, high = heapq.heappop(queue)
        middle, width = (low + high) / 2, high - low
        penalty, bound = tangent(middle)
        enough = best.value + CANTELLI_GAP * (max(1.0, abs(best.value)) if best.columns else 1.0)
        relaxed = maximise(
            mdp, penalty, bound + width**2 / (4 * epsilon), pool, cutoff=enough, target=enough
        )
        if relaxed.upper_bound <= enough or width <= 1e-7 * ceiling:
            upper_bound = max(upper_bound, relaxed.upper_bound)
            continue
        mean = middle
        while True:  # m <- mean of the best policy at m, while the return improves
            solution = maximise(mdp, *tangent(mean), pool, cutoff=best.value)
            if solution.value <= best.value + 1e-12:
                break
            best, mean = solution, solution.law.expectation(variable)
        for half in ((low, middle), (middle, high)):
            heapq.heappush(queue, (-relaxed.upper_bound, *half))
    return _feasible(best, upper_bound)


def _feasible(found: Optimum, upper_bound: float = -np.inf) -> Optimum:
    if not found.columns:
        raise Infeasible("No policy satisfies the constraint; raise the limit or epsilon.")
    return replace(found, upper_bound=max(found.upper_bound, upper_bound))


CONSTRAINTS = {"var": best_under_var, "cvar": best_under_cvar, "cantelli": best_under_cantelli}
