"""Return and constraint of constant and random actions. If the best of these meets a limit, the
limit is easy."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np
from jaxtyping import Float

from canary.checking.probe import LANES, Play, Probe
from canary.constraints import Chance, Constraint, One, parts_of
from canary.environments.gymnasium_environment import GymnasiumEnvironment
from canary.environments.protocol import Discrete, Environment
from canary.numerics.statistics import measurement

RANDOM = "random actions"
MOST_ACTIONS = 16  # constant actions that are tried
SHARE = 0.05  # of the worst episodes, without a constraint
LONGEST = 5000  # steps of an episode that a check waits for

Progress = Callable[[int, int, str], bool | None]
"""Called every few steps with (done, total, what is being done); False stops."""


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
        each = [
            self.of_cost(i)._about_cost(part) for i, part in enumerate(_parts(self, constraint))
        ]
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


def _parts(played: Played, constraint: Constraint | None) -> tuple[One | None, ...]:
    """The constraint on each cost; None where there is none."""
    if constraint is not None:
        return parts_of(constraint)
    return (None,) * (1 if played.costs.ndim == 1 else played.costs.shape[1])


def play_simple(
    environment: Environment, play: Play, episodes: int, progress: Progress
) -> tuple[list[Played], Probe]:
    """Up to `episodes` of random and of every constant action, in turns, until `progress` returns
    False; and the first record of random actions.

    Episodes that did not end or have non-finite numbers are left out. `play` is what `make_probe`
    makes of the environment.
    """
    lanes = 1 if isinstance(environment, GymnasiumEnvironment) else LANES
    policies = {RANDOM: None} | constant_actions(environment)
    turns = list(product(range(-(-episodes // lanes)), policies))
    records: dict[str, list[Probe]] = {}
    for done, (number, name) in enumerate(turns):

        def going(done: int = done, name: str = name) -> bool:
            return progress(done, len(turns), name) is not False

        if done and not going():
            break
        length = min(environment.horizon + 1, LONGEST)
        records.setdefault(name, []).append(play(length, number, policies[name], going))
    played = [_whole(name, own, episodes) for name, own in records.items()]
    return [one for one in played if len(one.returns)], records[RANDOM][0]


def _whole(policy: str, records: Sequence[Probe], most: int) -> Played:
    """The episodes of these records that ended with finite numbers."""
    costs = np.concatenate([record.episode("cost")[record.finished] for record in records])
    returns = np.concatenate([record.episode("reward")[record.finished] for record in records])
    good = np.isfinite(costs).all(tuple(range(1, costs.ndim))) & np.isfinite(returns)
    return Played(policy, costs[good][:most], returns[good][:most])


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
    each = [
        advise([one.of_cost(index) for one in played], part)
        for index, part in enumerate(_parts(played[0], constraint))
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
    low = min(one.least_limit(constraint) for one in played)
    high = best.least_limit(constraint)
    if high <= low:  # the best is the safest: only a smaller limit asks for something
        low = 0.0
    found = {float(f"{low + share * (high - low):.2g}") for share in (0.25, 0.5, 0.75)}
    limits = sorted(limit for limit in found if limit > 0)
    worth = f"Limits worth trying: {', '.join(f'{value:g}' for value in limits)}." if limits else ""
    if constraint is None:
        return {"kind": "no limit", "limits": limits, "text": worth}
    known = known_sentence(played, constraint)
    cheapest = min(float(one.costs.min()) for one in played)
    if constraint.measure(best.costs) <= constraint.allowed:
        kind, more = "trivial", f"and none of them earns more: the limit may be trivial. {worth}"
    elif cheapest > constraint.limit:
        kind, more = "hopeless", f"and no episode costs less than {cheapest:.4g}. {worth}"
    else:
        kind = "interesting"
        more = f"and {_about(best, constraint)} earns the most: the limit is interesting."
    text = f"{known[0].upper()}{known[1:]}, {more}".strip()
    return {"kind": kind, "limits": limits, "text": text}
