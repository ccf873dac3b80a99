"""The best expected return under a tail-risk constraint: the ground truth for learning.

With C the episode cost, l the limit, beta = 1/epsilon - 1:

    VaR       P(C > l) <= epsilon                                                           (eq:var-bound)
    CVaR      for some eta:  E[(C - eta)^+] <= epsilon (l - eta)                (eq:rockafellar, eq:cvar-opt)
    Cantelli  for some m:    beta E[(C - m)^2] + 2 (l - m) E[C - m] <= (l - m)^2      (eq:cantelli-objective)

For a fixed eta or m each is one linear constraint on the law of C (see `linear.py`); a search in one
dimension remains. For CVaR the best eta is a cost level not above l, so all of them are tried. The
Cantelli line is the paper's B(pi) <= 0 with both squares replaced by tangents at m,

    sigma^2 <= E[(C - m)^2]        and        (l - mu)^2 >= (l - m)^2 - 2 (l - m) (mu - m),

with equality at m = mu. So every m <= l gives only safe policies (mu <= (l + m) / 2 <= l follows),
and m = mu loses nothing.

With a dead zone d, X = phi_d(C / l) replaces C and 1 replaces l (`canary.numerics.costs`).
"""

import heapq
from dataclasses import replace
from itertools import pairwise

import numpy as np
from jaxtyping import Float

from canary.errors import CanaryError
from canary.exact.distribution import bounded_variable
from canary.exact.linear import NOTHING, Column, Optimum, maximise
from canary.exact.mdp import FiniteMDP
from canary.values import checked

CANTELLI_GAP = 1e-6  # the search ends at this certified gap, relative to max(1, |return|)


class Infeasible(CanaryError):
    """No policy satisfies the constraint."""


@checked
def best_under_var(
    mdp: FiniteMDP, limit: float, epsilon: float, pool: list[Column] | None = None
) -> Optimum:
    """max J subject to P(C > limit) <= epsilon."""
    pool = _check(limit, epsilon, pool)
    solution = maximise(mdp, (mdp.support > limit).astype(float), epsilon, pool)
    return _optimum("var", solution, solution.upper_bound)


@checked
def best_under_cvar(
    mdp: FiniteMDP, limit: float, epsilon: float, pool: list[Column] | None = None
) -> Optimum:
    """max J subject to CVaR_epsilon(C) <= limit."""
    pool = _check(limit, epsilon, pool)
    best, upper_bound = NOTHING, -np.inf
    # A small epsilon wants a large eta, and a good first solution prunes the others.
    for eta in mdp.support[mdp.support <= limit][::-1]:
        excess = np.maximum(mdp.support - eta, 0.0)
        solution = maximise(mdp, excess, epsilon * (limit - eta), pool, cutoff=best.value)
        upper_bound = max(upper_bound, solution.upper_bound)
        best = max(best, solution, key=lambda one: one.value)
    return _optimum("cvar", best, upper_bound)


@checked
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
    [low, high], a chord of mu^2 instead of its tangent relaxes the constraint: it adds
    (high - low)^2 / (4 epsilon) to the tangent's bound at the midpoint. Intervals whose relaxed
    optimum is no better than the best known policy are dropped, the others halved: the answer is
    global and its gap is known.
    """
    pool = _check(limit, epsilon, pool)
    variable, ceiling = bounded_variable(mdp.support, limit, dead_zone)
    highest = ceiling
    if dead_zone is not None:
        # The largest mean with P(X >= 1) <= epsilon. An X that is always 1 has B = 0 and is unsafe
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
        while True:  # m <- mean of the best policy at m, while that improves on the best
            solution = maximise(mdp, *tangent(mean), pool, cutoff=best.value)
            if solution.value <= best.value + 1e-12:
                break
            best, mean = solution, solution.law.expectation(variable)
        for half in ((low, middle), (middle, high)):
            heapq.heappush(queue, (-relaxed.upper_bound, *half))
    return _optimum("cantelli", best, upper_bound)


def _check(limit: float, epsilon: float, pool: list[Column] | None) -> list[Column]:
    """The pool, after the constraint was checked."""
    if not (np.isfinite(limit) and limit >= 0):
        raise CanaryError(f"The cost limit must be finite and not negative, not {limit}.")
    if not 0 < epsilon < 1:
        raise CanaryError(f"Epsilon must lie strictly between 0 and 1, not {epsilon}.")
    return [] if pool is None else pool


def _optimum(constraint: str, found: Optimum, upper_bound: float) -> Optimum:
    if not found.columns:
        raise Infeasible(
            f"No policy satisfies the {constraint} constraint; raise the limit or epsilon."
        )
    return replace(found, upper_bound=max(found.upper_bound, upper_bound))


CONSTRAINTS = {"var": best_under_var, "cvar": best_under_cvar, "cantelli": best_under_cantelli}
