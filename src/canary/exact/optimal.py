"""The best expected return under a tail-risk constraint: the ground truth that learning is measured
against.

With C the episode cost, l the limit, beta = 1/epsilon - 1:

    VaR       P(C > l) <= epsilon                                                           (eq:var-bound)
    CVaR      for some eta:  E[(C - eta)^+] <= epsilon (l - eta)                (eq:rockafellar, eq:cvar-opt)
    Cantelli  for some m:    beta E[(C - m)^2] + 2 (l - m) E[C - m] <= (l - m)^2      (eq:cantelli-objective)

For a fixed eta or m each is one linear constraint on the law of C (see `linear.py`); what remains
is a search in one dimension. For CVaR the best eta is a cost level not above l, so all of them are
tried. The Cantelli line is the paper's B(pi) <= 0 with both squares replaced by tangents at m,

    sigma^2 <= E[(C - m)^2]        and        (l - mu)^2 >= (l - m)^2 - 2 (l - m) (mu - m),

which hold with equality at m = mu. So every m <= l gives safe policies only (mu <= (l + m) / 2 <= l
follows as well), and m = mu loses nothing.

With a dead zone d the variable is X = phi_d(C / l) in place of C and 1 in place of l
(`canary.numerics.shaped_cost`); nothing else changes.
"""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np
from jaxtyping import Float, Int

from canary.errors import CanaryError
from canary.exact.distribution import CostLaw, bounded_variable, visits
from canary.exact.linear import Column, LinearOptimum, best_response, maximise
from canary.exact.mdp import FiniteMDP

# Certified distance to the best return, relative to max(1, |return|), that ends the search
CANTELLI_GAP = 1e-6


class Infeasible(CanaryError):
    """No policy satisfies the constraint."""


@dataclass(frozen=True, eq=False)
class Mixture:
    """Draw one deterministic policy before the episode, then follow its actions [time, state,
    spent]."""

    policies: tuple[Int[np.ndarray, "time state spent"], ...] = field(repr=False)
    weights: tuple[float, ...]


@dataclass(frozen=True, eq=False)
class Optimum:
    """The best policy under a constraint, the law of its cost, and how far from the truth it can
    be."""

    constraint: str
    limit: float
    epsilon: float
    value: float
    """The expected return of `policy`."""
    upper_bound: float
    """No policy that satisfies the constraint has a larger return."""
    multiplier: float
    """What one unit of the linear constraint's bound is worth in return."""
    parameter: float | None
    """eta for CVaR, m for Cantelli (with a dead zone: a mean of phi, in [0, 1))."""
    law: CostLaw
    policy: Mixture
    dead_zone: float | None = None
    """That of the shaped cost; None is the paper's constraint."""


def best_under_var(
    mdp: FiniteMDP, limit: float, epsilon: float, pool: list[Column] | None = None
) -> Optimum:
    """max J subject to P(C > limit) <= epsilon."""
    _check_constraint(limit, epsilon)
    solution = maximise(mdp, (mdp.support > limit).astype(float), epsilon, _or_new(pool))
    return _optimum(mdp, "var", (limit, epsilon), solution, None)


def best_under_cvar(
    mdp: FiniteMDP, limit: float, epsilon: float, pool: list[Column] | None = None
) -> Optimum:
    """max J subject to CVaR_epsilon(C) <= limit."""
    _check_constraint(limit, epsilon)
    pool = _or_new(pool)
    best, best_eta, upper_bound = LinearOptimum(-np.inf, -np.inf, np.inf), None, -np.inf
    levels = mdp.support[mdp.support <= limit]
    for eta in levels[
        ::-1
    ]:  # a small epsilon wants a large eta, and a good first solution prunes the others
        excess = np.maximum(mdp.support - eta, 0.0)
        solution = maximise(mdp, excess, epsilon * (limit - eta), pool, cutoff=best.value)
        upper_bound = max(upper_bound, solution.upper_bound)
        if solution.value > best.value:
            best, best_eta = solution, float(eta)
    return _optimum(mdp, "cvar", (limit, epsilon), best, best_eta, upper_bound)


def best_under_cantelli(
    mdp: FiniteMDP,
    limit: float,
    epsilon: float,
    pool: list[Column] | None = None,
    *,
    dead_zone: float | None = None,
) -> Optimum:
    """max J subject to B <= 0 and E[X] <= b, by branch and bound over the mean of X.

    (X, b) is (C, limit) or, with a dead zone, (phi_d(C / limit), 1). For policies with mean in
    [low, high], a chord of mu^2 in place of its tangent relaxes the constraint: the result is the
    tangent's at the midpoint with (high - low)^2 / (4 epsilon) added to the bound. Intervals whose
    relaxed optimum is no better than the best policy found are dropped, the others halved: the
    answer is global and its gap known.
    """
    _check_constraint(limit, epsilon)
    pool = _or_new(pool)
    variable, ceiling = bounded_variable(mdp.support, limit, dead_zone)
    setting = variable, ceiling, epsilon
    highest = ceiling if dead_zone is None else _largest_mean(variable, epsilon)
    best, best_mean = LinearOptimum(-np.inf, -np.inf, np.inf), None
    edges = np.linspace(0.0, highest, 9)
    queue = [(-np.inf, float(low), float(high)) for low, high in pairwise(edges)]
    heapq.heapify(queue)
    upper_bound = -np.inf
    while queue:
        _, low, high = heapq.heappop(queue)
        middle, width = (low + high) / 2, high - low
        penalty, bound = _tangent(*setting, middle)
        enough = best.value + CANTELLI_GAP * (max(1.0, abs(best.value)) if best.columns else 1.0)
        relaxed = maximise(
            mdp, penalty, bound + width**2 / (4 * epsilon), pool, cutoff=enough, target=enough
        )
        if relaxed.upper_bound <= enough or width <= 1e-7 * ceiling:
            upper_bound = max(upper_bound, relaxed.upper_bound)
            continue
        best, best_mean = _ascend(mdp, setting, middle, pool, (best, best_mean))
        for half in ((low, middle), (middle, high)):
            heapq.heappush(queue, (-relaxed.upper_bound, *half))
    optimum = _optimum(mdp, "cantelli", (limit, epsilon), best, best_mean, upper_bound)
    return replace(optimum, dead_zone=dead_zone)


def _largest_mean(variable: Float[np.ndarray, "spent"], epsilon: float) -> float:
    """The largest mean of a saturated X with P(X >= 1) <= epsilon.

    Means above it are not safe. That matters for one law: an X that is always 1, where every
    episode may violate the limit, has B = 0.
    """
    return float(epsilon + (1 - epsilon) * variable[variable < 1].max())


def _tangent(
    variable: Float[np.ndarray, "spent"], ceiling: float, epsilon: float, mean: float
) -> tuple[Float[np.ndarray, "spent"], float]:
    deviation = variable - mean
    return (1 / epsilon - 1) * deviation**2 + 2 * (ceiling - mean) * deviation, (
        ceiling - mean
    ) ** 2


def _ascend(
    mdp: FiniteMDP,
    setting: tuple[Float[np.ndarray, "spent"], float, float],
    mean: float,
    pool: list[Column],
    best: tuple[LinearOptimum, float | None],
) -> tuple[LinearOptimum, float | None]:
    """Follow m <- mean of the best policy at m while that improves on the best: it can never get
    worse."""
    while True:
        solution = maximise(mdp, *_tangent(*setting, mean), pool, cutoff=best[0].value)
        if solution.value <= best[0].value + 1e-12:
            return best
        best = solution, mean
        mean = solution.law.expectation(setting[0])


def markov_policy(mdp: FiniteMDP, mixture: Mixture) -> Float[np.ndarray, "time state spent action"]:
    """One randomised policy on (time, state, spent) with the same law of return and cost as the
    mixture.

    It plays each action as often as the mixture does there, and the first policy's where the
    mixture never comes.
    """
    one_hot = np.eye(mdp.actions)
    parts = zip(mixture.policies, mixture.weights, strict=True)
    measure = np.sum([weight * visits(mdp, policy) for policy, weight in parts], axis=0)
    total = measure.sum(axis=-1, keepdims=True)
    return np.where(
        total > 0, measure / np.where(total > 0, total, 1.0), one_hot[mixture.policies[0]]
    )


def _or_new(pool: list[Column] | None) -> list[Column]:
    return [] if pool is None else pool


def _check_constraint(limit: float, epsilon: float) -> None:
    if not (np.isfinite(limit) and limit >= 0):
        raise CanaryError(
            f"The cost limit must be a finite number that is not negative, not {limit}."
        )
    if not 0 < epsilon < 1:
        raise CanaryError(
            f"Epsilon is a probability and must lie strictly between 0 and 1, not {epsilon}."
        )


def _optimum(
    mdp: FiniteMDP,
    constraint: str,
    setting: tuple[float, float],
    solution: LinearOptimum,
    parameter: float | None,
    upper_bound: float = -np.inf,
) -> Optimum:
    limit, epsilon = setting
    if not solution.columns:
        raise Infeasible(
            f"No policy satisfies the {constraint} constraint with limit {limit:g} and epsilon "
            f"{epsilon:g}; raise the limit or epsilon."
        )
    policies = tuple(
        best_response(mdp, column.penalty, column.reward_weight)[1] for column in solution.columns
    )
    return Optimum(
        constraint=constraint,
        limit=limit,
        epsilon=epsilon,
        value=solution.value,
        upper_bound=max(solution.upper_bound, upper_bound),
        multiplier=solution.multiplier,
        parameter=parameter,
        law=solution.law,
        policy=Mixture(policies, solution.weights),
    )


CONSTRAINTS = {"var": best_under_var, "cvar": best_under_cvar, "cantelli": best_under_cantelli}


@dataclass(frozen=True)
class FrontierPoint:
    """One constraint at one epsilon; `optimum` is None where no policy satisfies it."""

    constraint: str
    limit: float
    epsilon: float
    optimum: Optimum | None


def frontier(
    mdp: FiniteMDP,
    limit: float,
    epsilons: Sequence[float],
    constraints: Sequence[str] = tuple(CONSTRAINTS),
) -> list[FrontierPoint]:
    """The optima of every constraint at every epsilon, in this order.

    All problems share one pool of policies, which saves about a third of the work of solving them
    apart.
    """
    unknown = [name for name in constraints if name not in CONSTRAINTS]
    if unknown:
        raise CanaryError(
            f"There is no constraint {unknown[0]!r}; choose among {', '.join(CONSTRAINTS)}."
        )
    pool: list[Column] = []
    return [
        FrontierPoint(name, limit, epsilon, _solve(mdp, name, (limit, epsilon), pool))
        for name in constraints
        for epsilon in epsilons
    ]


def _solve(
    mdp: FiniteMDP, name: str, setting: tuple[float, float], pool: list[Column]
) -> Optimum | None:
    try:
        return CONSTRAINTS[name](mdp, *setting, pool)
    except Infeasible:
        return None
