"""The exact law of the episode cost under a given policy, by forward dynamic programming.

With mass[t](s, k) the probability that after t steps the episode still runs, in state s, with k
units spent,

    mass[t+1](s', k + c(s,a,s')) += mass[t](s, k) pi_t(a | s, k) P(s' | s, a),

and the mass that enters a terminal state, or remains at the horizon, is P(C = k).
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float

from canary.errors import CanaryError
from canary.exact.mdp import FiniteMDP
from canary.numerics.costs import shaped

ROUNDING = 1e-12  # slack when sums of probabilities are compared

Policy = np.ndarray | Callable[[np.ndarray, np.ndarray], np.ndarray]


@dataclass(frozen=True, eq=False)
class CostLaw:
    """The law of the episode cost C, with the expected return and length."""

    support: Float[np.ndarray, "spent"] = field(repr=False)
    probabilities: Float[np.ndarray, "spent"] = field(repr=False)
    expected_return: float = np.nan
    expected_length: float = np.nan

    @property
    def mean(self) -> float:
        return float(self.support @ self.probabilities)

    @property
    def variance(self) -> float:
        return float((self.support - self.mean) ** 2 @ self.probabilities)

    def expectation(self, values: Float[np.ndarray, "spent"]) -> float:
        """E[f(C)] for f given on the support."""
        return float(values @ self.probabilities)

    def violation(self, limit: float) -> float:
        """P(C > limit), strictly."""
        return float(self.probabilities[self.support > limit].sum())

    def value_at_risk(self, epsilon: float) -> float:
        """The smallest eta with P(C > eta) <= epsilon (eq:strict-var)."""
        exceedance = np.append(np.cumsum(self.probabilities[:0:-1])[::-1], 0.0)
        return float(self.support[np.argmax(exceedance <= epsilon + ROUNDING)])

    def conditional_value_at_risk(self, epsilon: float) -> float:
        """Mean of the worst share epsilon: eta + E[(C - eta)^+] / epsilon at eta = VaR
        (eq:rockafellar)."""
        eta = self.value_at_risk(epsilon)
        return eta + self.expectation(np.maximum(self.support - eta, 0.0)) / epsilon

    def shaped_moments(self, limit: float, dead_zone: float | None) -> tuple[float, float]:
        """Mean and variance of X (see `bounded_variable`)."""
        variable, _ = bounded_variable(self.support, limit, dead_zone)
        mean = self.expectation(variable)
        return mean, self.expectation((variable - mean) ** 2)

    def cantelli(self, limit: float, epsilon: float, dead_zone: float | None = None) -> float:
        """B = (1/epsilon - 1) Var[X] - (b - E[X])^2 (eq:chebyshev_constraint).

        A law with B <= 0 and E[X] < b is safe. Without a dead zone X is the cost and b the limit;
        with one, X = phi_d(C / limit) and b = 1.
        """
        _, bound = bounded_variable(self.support, limit, dead_zone)
        mean, variance = self.shaped_moments(limit, dead_zone)
        return (1 / epsilon - 1) * variance - (bound - mean) ** 2

    def guaranteed_violation(self, limit: float, dead_zone: float | None = None) -> float:
        """Cantelli's bound from the moments of X; 1 if the inequality does not apply:

        P(C > limit) <= P(X >= b) <= Var[X] / (Var[X] + (b - E[X])^2)        for E[X] < b.

        Without a dead zone, the bound is 0 if the cost always equals the limit.
        """
        variable, bound = bounded_variable(self.support, limit, dead_zone)
        if dead_zone is None and not self.probabilities[variable != bound].any():
            return 0.0
        mean, variance = self.shaped_moments(limit, dead_zone)
        if mean >= bound:
            return 1.0
        reached = float(self.probabilities[variable >= bound].sum())
        return max(variance / (variance + (bound - mean) ** 2), reached)  # smaller only by rounding


def bounded_variable(
    cost: Float[np.ndarray, "spent"], limit: float, dead_zone: float | None
) -> tuple[Float[np.ndarray, "spent"], float]:
    """(X, b) with X >= b in every violation: (C, limit), or (phi_d(C / limit), 1)."""
    if dead_zone is None:
        return cost, limit
    if not (0 <= dead_zone < 1 and limit > 0):
        raise CanaryError(
            f"A dead zone is a share in [0, 1) of a positive limit, not {dead_zone} of {limit}."
        )
    return shaped(cost / limit, dead_zone), 1.0


def mix(laws: list[CostLaw], weights: Float[np.ndarray, "law"]) -> CostLaw:
    """The law of an agent that draws one of several policies before each episode."""
    return CostLaw(
        support=laws[0].support,
        probabilities=weights @ np.array([law.probabilities for law in laws]),
        expected_return=float(weights @ np.array([law.expected_return for law in laws])),
        expected_length=float(weights @ np.array([law.expected_length for law in laws])),
    )


def cost_law(mdp: FiniteMDP, policy: Policy) -> CostLaw:
    """The law of C under a policy. The policy is one of

    - an integer array of actions: [state], [state, spent] or [time, state, spent];
    - an array of probabilities: [state, action], [state, spent, action] or [time, state, spent,
      action];
    - a function (states, spent) -> probabilities [case, action], called once with all cases;
      spent is in the units of the cost.

    The `spent` axis counts cost levels, 0 first, and must have `len(mdp.support)` entries.
    """
    table = tabulate(mdp, policy)
    finished = np.zeros(mdp.levels_at(mdp.horizon))
    expected_uses = np.zeros((mdp.states, mdp.actions))
    for _, flow, ended in _flows(mdp, table):
        finished[: len(ended)] += ended
        expected_uses += flow.sum(axis=2)
    expected_return = float((expected_uses * mdp.expected_reward).sum())
    return CostLaw(mdp.support, finished, expected_return, float(expected_uses.sum()))


def visits(mdp: FiniteMDP, policy: Policy) -> Float[np.ndarray, "time state spent action"]:
    """The occupation measure: the probability that the episode still runs at a time, in a state,
    with a spent cost, and takes an action."""
    measure = np.zeros((mdp.horizon, mdp.states, len(mdp.support), mdp.actions))
    for time, flow, _ in _flows(mdp, tabulate(mdp, policy)):
        if time < mdp.horizon:
            measure[time, :, : flow.shape[2]] = np.moveaxis(flow, 1, 2)
    return measure


def tabulate(mdp: FiniteMDP, policy: Policy) -> np.ndarray:
    """A policy as probabilities [time, state, spent, action] or, if it is deterministic, as actions
    [time, state, spent]."""
    shape = mdp.states, len(mdp.support)
    if callable(policy):
        states, spent = np.meshgrid(np.arange(mdp.states), mdp.support, indexing="ij")
        policy = np.asarray(policy(states.ravel(), spent.ravel()), float)
        if policy.size == states.size * mdp.actions:
            policy = policy.reshape(*shape, mdp.actions)
    policy = np.asarray(policy)
    is_actions = np.issubdtype(policy.dtype, np.integer)
    last = () if is_actions else (mdp.actions,)
    forms = [(mdp.states, *last), (*shape, *last), (mdp.horizon, *shape, *last)]
    if policy.shape not in forms:
        raise CanaryError(
            f"A policy table must have shape {', '.join(map(str, forms))}, for [state], [state, "
            f"spent] or [time, state, spent], not {policy.shape}."
        )
    if is_actions and not ((policy >= 0) & (policy < mdp.actions)).all():
        raise CanaryError(f"Actions must be numbers from 0 to {mdp.actions - 1}.")
    if not is_actions:
        total = policy.sum(axis=-1, keepdims=True)
        if not ((policy >= 0).all() and (np.abs(total - 1) <= 1e-5).all()):
            raise CanaryError(
                "Action probabilities must be non-negative and add up to 1 everywhere."
            )
        policy = policy.astype(float) / total  # removes rounding of a float32 network
    policy = policy[:, None] if policy.shape == forms[0] else policy
    return np.broadcast_to(policy, forms[2])


def _flows(mdp: FiniteMDP, table: np.ndarray) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
    """For each time 0..horizon: the flow [state, action, level] of running episodes, and the mass
    [level] of episodes that just ended. At the horizon all end."""
    mass = mdp.initial[:, None]
    every_action = np.arange(mdp.actions)[:, None]
    for time in range(mdp.horizon):
        running = np.where(mdp.terminal[:, None], 0.0, mass)
        here = table[time, :, : mass.shape[1]]
        chance = here[:, None] == every_action if here.ndim == 2 else np.moveaxis(here, 2, 1)
        flow = running[:, None] * chance
        yield time, flow, mass[mdp.terminal].sum(axis=0)
        mass = mdp.advance(flow)
    yield mdp.horizon, np.zeros((mdp.states, mdp.actions, 1)), mass.sum(axis=0)
