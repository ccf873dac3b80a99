"""A finite decision process as tables.

An episode starts in `initial` and ends when it enters a terminal state or after `horizon` steps.
Its return J = sum r(s, a, s') and its cost C = sum c(s, a, s') are undiscounted. All costs are
whole multiples of one unit, so the spent cost is an integer level.
"""

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy import sparse

from canary.environments.protocol import Environment
from canary.errors import CanaryError

LARGEST_DENOMINATOR = 1_000_000
LARGEST_TABLE = 1_000_000_000  # entries of a policy on (time, state, level)


@dataclass(frozen=True, kw_only=True, eq=False)
class FiniteMDP:
    """Tables of a finite environment. Rows of terminal states are not used."""

    transition: np.ndarray  # [state, action, next state]
    reward: np.ndarray  # [state, action, next state]
    cost: np.ndarray  # [state, action, next state]
    terminal: np.ndarray  # [state]
    initial: np.ndarray  # [state]
    horizon: int

    def __post_init__(self):
        for name in ("transition", "reward", "cost", "initial"):
            object.__setattr__(self, name, np.asarray(getattr(self, name), float))
        object.__setattr__(self, "terminal", np.asarray(self.terminal, bool))
        _check(self)

    @property
    def states(self) -> int:
        return self.transition.shape[0]

    @property
    def actions(self) -> int:
        return self.transition.shape[1]

    @cached_property
    def possible(self) -> Bool[np.ndarray, "state action next"]:
        """Possible transitions of an episode."""
        return (self.transition > 0) & ~self.terminal[:, None, None]

    @cached_property
    def unit(self) -> Fraction:
        """The largest rational number of which all costs are multiples; 1 if all are 0."""
        used = np.unique(self.cost[self.possible])
        costs = [Fraction(cost).limit_denominator(LARGEST_DENOMINATOR) for cost in used]
        return Fraction(
            math.gcd(*(cost.numerator for cost in costs)) or 1,
            math.lcm(*(cost.denominator for cost in costs)),
        )

    @cached_property
    def levels(self) -> Int[np.ndarray, "state action next"]:
        """The cost of each possible transition in units; 0 for impossible ones."""
        return np.where(self.possible, np.rint(self.cost / float(self.unit)), 0).astype(int)

    @cached_property
    def support(self) -> Float[np.ndarray, "spent"]:
        """All possible costs of an episode in order, correctly rounded (3 units of 1/10 are 0.3)."""
        return np.array([float(level * self.unit) for level in range(self.levels_at(self.horizon))])

    def levels_at(self, time: int) -> int:
        """Number of cost levels, including 0, that can be reached in `time` steps."""
        return time * int(self.steps_of_cost[-1]) + 1

    @cached_property
    def expected_reward(self) -> Float[np.ndarray, "state action"]:
        return np.where(self.possible, self.transition * self.reward, 0.0).sum(axis=2)

    @cached_property
    def steps_of_cost(self) -> Int[np.ndarray, "step"]:
        """The distinct costs of one step in units, in order."""
        return np.unique(self.levels)

    @cached_property
    def kernel(self) -> sparse.csr_array:
        """Transition probabilities: rows (state, action), columns (step of cost, next state)."""
        chance = np.where(self.possible, self.transition, 0.0).reshape(-1, self.states)
        levels = self.levels.reshape(-1, self.states)
        blocks = [np.where(levels == step, chance, 0.0) for step in self.steps_of_cost]
        return sparse.csr_array(np.concatenate(blocks, axis=1))

    @cached_property
    def _arriving(self) -> sparse.csr_array:
        return sparse.csr_array(self.kernel.T)

    def advance(
        self, flow: Float[np.ndarray, "state action level *more"]
    ) -> Float[np.ndarray, "state level_after *more"]:
        """One step: the mass in (state, action, level) moves to the next states and levels."""
        levels, more = flow.shape[2], flow.shape[3:]
        arrivals = self._arriving @ flow.reshape(self.states * self.actions, -1)
        mass = np.zeros((self.states, levels + self.steps_of_cost[-1], *more))
        by_step = arrivals.reshape(-1, self.states, levels, *more)
        for step, arrived in zip(self.steps_of_cost, by_step, strict=True):
            mass[:, step : step + levels] += arrived
        return mass


def from_environment(environment: Environment) -> FiniteMDP:
    """The environment's own tables; raises if it has none."""
    tables = getattr(environment, "finite_tables", None)
    if tables is None:
        raise CanaryError(
            f"{type(environment).__name__} has no finite table of states and costs, so its best "
            "returns cannot be computed exactly; state it as finite_tables() "
            "(examples/maintenance.py). `canary certify` is for any environment."
        )
    return FiniteMDP(**tables()._asdict(), horizon=environment.horizon)


def _check(mdp: FiniteMDP) -> None:
    states, actions = (*mdp.transition.shape, 0, 0)[:2]
    shapes = dict.fromkeys(("transition", "reward", "cost"), (states, actions, states))
    for name, shape in (shapes | dict.fromkeys(("terminal", "initial"), (states,))).items():
        found = getattr(mdp, name).shape
        if found != shape or 0 in shape:
            raise CanaryError(
                f"The {name} table has the shape {found}; the shapes are [state, action, next "
                "state] for transition, reward and cost, [state] for terminal and initial."
            )

    def is_distribution(table: np.ndarray) -> bool:
        return bool((table >= 0).all() and (np.abs(table.sum(axis=-1) - 1) <= 1e-9).all())

    costs, running = mdp.cost[mdp.possible], ~mdp.terminal
    demands = {
        "The horizon must be a whole number from 1 on.": isinstance(mdp.horizon, int)
        and mdp.horizon > 0,
        "Transition probabilities must be non-negative and add up to 1.": is_distribution(
            mdp.transition[running]
        ),
        "The initial distribution must be non-negative and add up to 1.": is_distribution(
            mdp.initial
        ),
        "Rewards must be finite.": np.isfinite(mdp.reward[mdp.possible]).all(),
        "Costs must be finite and not negative.": (np.isfinite(costs) & (costs >= 0)).all(),
    }
    for sentence, is_met in demands.items():
        if not is_met:
            raise CanaryError(sentence)
    counts = costs / float(mdp.unit)
    entries = mdp.horizon * states * (mdp.horizon * counts.max(initial=0) + 1)
    is_whole = np.abs(counts - np.rint(counts)) <= 1e-9 * counts
    if entries > LARGEST_TABLE or not is_whole.all():
        raise CanaryError(
            f"The common unit of the costs, {float(mdp.unit):.2g}, is too fine: round the costs to "
            "a coarser unit or shorten the horizon."
        )
