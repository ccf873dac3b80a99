"""The relative variance of estimates of tail-risk constraints, exactly (docs/relative-variance.md).

With s(tau) = sum_t grad_theta log pi(a_t | x_t) the score of an episode, every relative variance of
the paper's appendix (app:scaling) is a function of three numbers for each cost k:

    probability  P(C = k),        score  E[s 1(C = k)],        square  E[|s|^2 1(C = k)].

In a finite environment they follow by dynamic programming, because |s + u|^2 = |s|^2 + 2 s.u +
|u|^2 (`scored_law`). The paper's constraints have one form, J_C = E[x(tau)] + b <= 0, and
kappa^2[m] = Var[m^] / |m|^2 of the mean over N independent episodes is

    value      Var[x] / (N J_C^2)                                = r^2 (R_x / (q N) - 1/N)     (lem:value)
    gradient   (E[|s x|^2] - |E[s x]|^2) / (N |E[s x]|^2)        =      R_g / (q N) - 1/N      (lem:grad)

with q the probability of the active event E, R_x = E[x^2 | E] / E[x | E]^2, R_g likewise for s x,
and r = |E[x]| / |J_C|. Cantelli's constraint has the true mean mu here; an algorithm uses the
sample mean, which adds a bias of order 1/N.
"""

from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Bool, Float

from canary.errors import CanaryError
from canary.exact.distribution import CostLaw, Policy, bounded_variable, cost_law, tabulate
from canary.exact.mdp import FiniteMDP

TEMPERATURE = 0.05  # of soft policies, in units of the return
HIGHEST_PRICE = 100.0


@dataclass(frozen=True, eq=False)
class ScoredLaw(CostLaw):
    """The law of the episode cost with the first two moments of the score on every cost."""

    score: Float[np.ndarray, "spent parameter"] = field(repr=False, kw_only=True)
    """E[s 1(C = cost)]."""
    square: Float[np.ndarray, "spent"] = field(repr=False, kw_only=True)
    """E[|s|^2 1(C = cost)]."""

    def gradient(self, values: Float[np.ndarray, "spent"]) -> Float[np.ndarray, "parameter"]:
        """E[s f(C)], which is the gradient of E[f(C)] (the score-function identity)."""
        return values @ self.score


def from_trajectories(
    cost: Float[np.ndarray, "episode"],
    score: Float[np.ndarray, "episode parameter"],
    probability: Float[np.ndarray, "episode"] | None = None,
) -> ScoredLaw:
    """The law of listed episodes with the given probabilities, or with equal ones."""
    order = np.argsort(cost, kind="stable")
    weight = np.full(len(cost), 1 / len(cost)) if probability is None else probability
    weight, score = weight[order], score[order]
    moments = {"score": weight[:, None] * score, "square": weight * (score**2).sum(1)}
    return ScoredLaw(cost[order], weight, **moments)


def scored_law(mdp: FiniteMDP, policy: Policy) -> ScoredLaw:
    """The exact law under a policy with parameters theta[state, action], added to its logits.

    In state s the score of action a is e_a - pi(. | s, spent) in the block of s. The policy has any
    form that `cost_law` accepts.
    """
    table = np.asarray(tabulate(mdp, policy))
    if table.ndim == 3:  # a deterministic policy, with scores 0
        table = np.eye(mdp.actions)[table]
    size = mdp.states * mdp.actions
    ended = np.zeros((len(mdp.support), 2 + size))  # columns: probability, square, score
    mass = np.zeros((mdp.states, 1, 2 + size))
    mass[:, 0, 0] = mdp.initial
    for time in range(mdp.horizon):
        levels = mass.shape[1]
        ended[:levels] += mass[mdp.terminal].sum(0)
        mass[mdp.terminal] = 0.0
        mass = mdp.advance(_after_action(mass, table[time, :, :levels]))
    ended += mass.sum(0)
    return ScoredLaw(mdp.support, ended[:, 0], score=ended[:, 2:], square=ended[:, 1])


def _after_action(
    mass: Float[np.ndarray, "state level moment"], chance: Float[np.ndarray, "state level action"]
) -> Float[np.ndarray, "state action level moment"]:
    """The moments of probability, |s|^2 and s after the score u of the action was added to s."""
    states, actions = mass.shape[0], chance.shape[2]
    flow = np.repeat(mass[:, None], actions, axis=1)
    for state in range(states):
        block = slice(2 + state * actions, 2 + (state + 1) * actions)
        score = np.eye(actions)[:, None, :] - chance[state][None]  # [action, level, parameter]
        inner = (flow[state, :, :, block] * score).sum(-1)
        weight = flow[state, :, :, 0]
        flow[state, :, :, 1] += 2 * inner + weight * (score**2).sum(-1)
        flow[state, :, :, block] += weight[..., None] * score
    return flow * chance.transpose(0, 2, 1)[..., None]


def soft_policy(mdp: FiniteMDP, price: float) -> Float[np.ndarray, "state action"]:
    """The stationary soft-optimal policy for r - price * c, by `horizon` soft backups. Its violation
    probability falls continuously as the price grows."""
    cost = np.where(mdp.possible, mdp.transition * mdp.cost, 0.0).sum(2)
    gain = mdp.expected_reward - price * cost
    value, q = np.zeros(mdp.states), gain
    for _ in range(mdp.horizon):
        q = gain + mdp.transition @ np.where(mdp.terminal, 0.0, value)
        top = q.max(1)
        value = top + TEMPERATURE * np.log(np.exp((q - top[:, None]) / TEMPERATURE).mean(1))
    weight = np.exp((q - q.max(1, keepdims=True)) / TEMPERATURE)
    return weight / weight.sum(1, keepdims=True)


def with_violation(
    mdp: FiniteMDP, limit: float, violation: float
) -> Float[np.ndarray, "state action"]:
    """The soft policy with P(C > limit) = violation, within a relative error of 1e-6."""

    def excess(price: float) -> float:
        return cost_law(mdp, soft_policy(mdp, price)).violation(limit) - violation

    low, high = 0.0, 1.0
    while high <= HIGHEST_PRICE and excess(high) > 0:
        high *= 2
    if excess(low) < 0 or high > HIGHEST_PRICE:
        raise CanaryError(f"No soft policy violates the limit {limit} with P = {violation:g}.")
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if excess(middle) > 0 else (low, middle)
        if abs(excess(high)) <= 1e-6 * violation:
            break
    return soft_policy(mdp, high)


@dataclass(frozen=True, eq=False)
class SampledConstraint:
    """A constraint value as the mean of an episode statistic plus a constant (eq:jc-decomp).

    With c_1 = 2 (l - mu / epsilon) and c_2 = 1/epsilon - 1:

        indicator     x = 1(C > l)                 b = -epsilon              active: C > l       q = p
        CVaR          x = (C - eta)^+ / epsilon    b = eta - l, eta = VaR    active: C > eta     q = P(C > eta)
        Cantelli      x = c_1 C + c_2 C^2          b = mu^2 / epsilon - l^2  active: C > 0       q = f
        shaped        the same of X = phi_d(C / l) with l = 1                active: C > d l     q = P(C > d l)

    The expected effective sample size of N episodes is q N. The shaped bound runs from the
    saturated cost (d = 0, q = f) to the indicator (d -> 1, q = p). The paper has q = epsilon for
    CVaR because it assumes no atom at eta (ass:support); in a finite environment q <= epsilon.
    """

    law: ScoredLaw = field(repr=False)
    statistic: Float[np.ndarray, "spent"] = field(repr=False)
    """x for every cost of the law."""
    active: Bool[np.ndarray, "spent"] = field(repr=False)
    """The costs of active episodes; x is 0 for all others."""
    offset: float

    @property
    def value(self) -> float:
        """J_C = E[x] + b."""
        return self.law.expectation(self.statistic) + self.offset

    @property
    def active_probability(self) -> float:
        """q, the share of active episodes."""
        return float(self.law.probabilities[self.active].sum())

    def noise_of_value(self, episodes: int) -> float:
        """kappa^2 of the value; infinite if J_C = 0."""
        x = self.statistic
        variance = self.law.expectation((x - self.law.expectation(x)) ** 2)
        return variance / (episodes * self.value**2) if self.value else np.inf

    def noise_of_gradient(self, episodes: int) -> float:
        """kappa^2 of the gradient; NaN if there is no gradient."""
        gradient = self.law.gradient(self.statistic)
        signal, square = float(gradient @ gradient), float(self.statistic**2 @ self.law.square)
        return (square / signal - 1) / episodes if signal else np.nan


def indicator(law: ScoredLaw, limit: float, epsilon: float) -> SampledConstraint:
    """P(C > l) <= epsilon itself (eq:indicator)."""
    violated = law.support > limit
    return SampledConstraint(law, violated.astype(float), violated, -epsilon)


def cvar(law: ScoredLaw, limit: float, epsilon: float) -> SampledConstraint:
    """CVaR <= l, with eta held at the quantile of the law (eq:rockafellar)."""
    eta = law.value_at_risk(epsilon)
    excess = np.maximum(law.support - eta, 0.0)
    return SampledConstraint(law, excess / epsilon, excess > 0, eta - limit)


def cantelli(
    law: ScoredLaw, limit: float, epsilon: float, dead_zone: float | None = None
) -> SampledConstraint:
    """B <= 0 of the cost or of the shaped cost (eq:cantelli-lin), with the true mean in c_1 and b."""
    variable, bound = bounded_variable(law.support, limit, dead_zone)
    centre = law.expectation(variable)
    statistic = 2 * (bound - centre / epsilon) * variable + (1 / epsilon - 1) * variable**2
    return SampledConstraint(law, statistic, variable > 0, centre**2 / epsilon - bound**2)
