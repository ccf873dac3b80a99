"""Return and constraint of constant and of random actions. A limit that the best of these meets is
easy."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np
from jaxtyping import Float

from canary.checking.probe import Probe, make_probe
from canary.constraints import Chance, Constraint, One, parts_of
from canary.environments.gymnasium_environment import GymnasiumEnvironment
from canary.environments.protocol import Discrete, Environment
from canary.numerics.statistics import measurement

RANDOM = "random actions"
LANES, HOST_LANES = 16, 2  # whole episodes at once; those of a host environment take turns
MOST_ACTIONS = 16  # constant actions that are tried
SHARE = 0.05  # of the worst episodes, where no constraint says it
LONGEST = 5000  # steps of an episode that a check waits for

Progress = Callable[[int, int, str], bool | None]
"""Called with (done, total, what is being done); False stops."""


@dataclass(frozen=True)
class Played:
    """Whole episodes of one simple policy."""

    policy: str
    costs: Float[np.ndarray, "episode"] | Float[np.ndarray, "episode cost"]
    returns: Float[np.ndarray, "episode"]

    @property
    def reward(self) -> float:
        return float(self.returns.mean())

    def of_cost(self, index: int) -> "Played":
        """The same episodes with one of several costs."""
        return self if self.costs.ndim == 1 else replace(self, costs=self.costs[:, index])

    def least_limit(self, constraint: One | None) -> float:
        """The smallest limit that these episodes meet."""
        if constraint is None or isinstance(constraint, Chance):
            share = SHARE if constraint is None else constraint.epsilon
            return float(np.quantile(self.costs, 1 - share, method="higher"))
        return constraint.measure(self.costs)

    def to_dict(self, constraint: Constraint | None) -> dict[str, Any]:
        """The return, and under `costs` what is known of each cost."""
        parts = _parts([self], constraint)
        each = [self.of_cost(index)._about_cost(part) for index, part in enumerate(parts)]
        count, reward = len(self.returns), self.reward
        return {"policy": self.policy, "episodes": count, "return_mean": reward, "costs": each}

    def _about_cost(self, constraint: One | None) -> dict[str, Any]:
        found = None if constraint is None else measurement(constraint, self.costs)
        return {
            "cost_mean": float(self.costs.mean()),
            "least_limit": self.least_limit(constraint),
            "constraint_value": None if found is None else found.value,
            "constraint_interval": None if found is None else [found.lower, found.upper],
        }


def _parts(played: Sequence[Played], constraint: Constraint | None) -> tuple[One | None, ...]:
    """The constraint on each cost; None where there is none."""
    if constraint is not None:
        return parts_of(constraint)
    costs = played[0].costs
    return (None,) * (1 if costs.ndim == 1 else costs.shape[1])


class Yardstick:
    """Plays simple policies on an environment; one program serves all."""

    def __init__(self, environment: Environment, episodes: int):
        most = HOST_LANES if isinstance(environment, GymnasiumEnvironment) else LANES
        self.policies = {RANDOM: None} | constant_actions(environment)
        self.episodes, self._lanes = episodes, min(most, episodes)
        self._play = make_probe(environment, min(environment.horizon + 1, LONGEST))

    def batch(self, policy: str, number: int) -> Probe:
        """A batch of episodes; the number is its seed."""
        return self._play(self._lanes, number, self.policies[policy])

    def play(self, progress: Progress) -> list[Played]:
        """Up to `episodes` of every policy, in turns, until `progress` returns False after the first
        batch. Episodes that did not end or have non-finite numbers are left out."""
        played: dict[str, list[Played]] = {name: [] for name in self.policies}
        turns = list(product(range(-(-self.episodes // self._lanes)), self.policies))
        for done, (number, name) in enumerate(turns):
            if progress(done, len(turns), name) is False and done:
                break
            record = self.batch(name, number)
            costs, returns = record.episode("cost"), record.episode("reward")
            is_finite = np.isfinite(costs).reshape(len(costs), -1).all(1) & np.isfinite(returns)
            good = record.finished & is_finite
            played[name].append(Played(name, costs[good], returns[good]))
        joined = (_joined(batches, self.episodes) for batches in played.values() if batches)
        return [one for one in joined if len(one.returns)]


def _joined(batches: Sequence[Played], most: int) -> Played:
    costs = np.concatenate([batch.costs for batch in batches])
    returns = np.concatenate([batch.returns for batch in batches])
    return Played(batches[0].policy, costs[:most], returns[:most])


def constant_actions(environment: Environment) -> dict[str, Any]:
    """Each action of a discrete space, up to a number of them; low, middle and high of a continuous
    one."""
    space = environment.action_space
    if isinstance(space, Discrete):
        chosen = np.unique(np.linspace(0, space.count - 1, min(space.count, MOST_ACTIONS)).round())
        return {f"action {int(action)}": np.int32(action) for action in chosen}
    ends = {"low": -1.0, "middle": 0.0, "high": 1.0}
    return {name: np.full(space.size, value, np.float32) for name, value in ends.items()}


def known_sentence(played: list[Played], constraint: Constraint) -> str:
    """Whether a constant or random action stays within the constraint, and what it earns."""
    if not played:
        return ""
    within = [one for one in played if constraint.measure(one.costs) <= constraint.allowed]
    if within:
        best = max(within, key=lambda one: one.reward)
        return f"{_about(best, constraint)} stays within the limit"
    lowest = min(played, key=lambda one: constraint.measure(one.costs))
    nearest = _about(lowest, constraint)
    return f"no constant or random action stays within the limit; nearest is {nearest}"


def _about(one: Played, constraint: Constraint) -> str:
    value = constraint.measure(one.costs)
    return (
        f"{one.policy} ({constraint.label} {value:.3g} in {len(one.costs)} episodes, return "
        f"{one.reward:.3g})"
    )


def advise_each(played: list[Played], constraint: Constraint | None) -> dict[str, Any]:
    """The advice about the limit; of several costs, that about each."""
    parts = _parts(played, constraint)
    each = [
        advise([one.of_cost(index) for one in played], part) for index, part in enumerate(parts)
    ]
    if len(each) == 1:
        return each[0]
    texts = (f"cost {index + 1}: {one['text']}" for index, one in enumerate(each))
    return {"each": each, "text": "\n".join(texts)}


def advise(played: list[Played], constraint: One | None) -> dict[str, Any]:
    """A sentence about the limit, if there is one, and limits worth trying: above what the safest
    of these policies needs, below what the one with the highest return needs."""
    if not any(one.costs.any() for one in played):
        text = "No episode has a cost, so nothing can be said about limits; check the cost."
        return {"kind": "unknown", "limits": [], "text": text}
    best = max(played, key=lambda one: one.reward)
    limits = _limits(played, best, constraint)
    worth = f"Limits worth trying: {', '.join(f'{value:g}' for value in limits)}." if limits else ""
    if constraint is None:
        return {"kind": "no limit", "limits": limits, "text": worth}
    known = known_sentence(played, constraint)
    known = known[0].upper() + known[1:]
    cheapest = min(float(one.costs.min()) for one in played)
    if constraint.measure(best.costs) <= constraint.allowed:
        kind, more = "trivial", f"and none of them earns more: the limit may be trivial. {worth}"
    elif cheapest > constraint.limit:
        kind, more = "hopeless", f"and no episode costs less than {cheapest:.4g}. {worth}"
    else:
        kind = "interesting"
        more = f"and {_about(best, constraint)} earns the most: the limit is interesting."
    return {"kind": kind, "limits": limits, "text": f"{known}, {more}".strip()}


def _limits(played: list[Played], best: Played, constraint: One | None) -> list[float]:
    """To two digits."""
    low = min(one.least_limit(constraint) for one in played)
    high = best.least_limit(constraint)
    if high <= low:  # the best is the safest: only a smaller limit asks for something
        low = 0.0
    found = {float(f"{low + share * (high - low):.2g}") for share in (0.25, 0.5, 0.75)}
    return sorted(limit for limit in found if limit > 0)
