"""`canary check-env`: findings about an environment, and a yardstick for its limit, the return and
constraint of random and constant actions. If the best of these meets the limit, the limit is easy.
"""

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import product
from typing import Any

import numpy as np
from jaxtyping import Float

from canary.checking.record import SHORT, Finding, Record, Recorder, findings_in, same_again
from canary.checking.structure import check_structure
from canary.constraints import Chance, Constraint, One, parts_of
from canary.environments.protocol import (
    ActionSpace,
    Discrete,
    name_of_environment,
    settings_of,
)
from canary.errors import CanaryError
from canary.numerics.statistics import measurement
from canary.values import Count, checked

RANDOM = "random actions"
MOST_ACTIONS = 16  # constant actions to try
SHARE = 0.05  # of the episodes may exceed a suggested limit, without a constraint
LONGEST = 5000  # steps after which a check cuts an episode off

Progress = Callable[[int, int, str], bool]
"""Called after every step with (done, total, what is done); stops if it returns False."""


@dataclass(frozen=True)
class Played:
    """Whole episodes of one simple policy."""

    policy: str
    costs: Float[np.ndarray, "episode"] | Float[np.ndarray, "episode cost"]
    returns: Float[np.ndarray, "episode"]

    @property
    def reward(self) -> float:
        return float(self.returns.mean())

    def least_limit(self, constraint: One | None) -> float:
        """The smallest limit that these episodes meet."""
        if constraint is None or isinstance(constraint, Chance):
            share = SHARE if constraint is None else constraint.epsilon
            return float(np.quantile(self.costs, 1 - share, method="higher"))
        return constraint.measure(self.costs)

    def text(self, constraint: Constraint) -> str:
        value = f"{constraint.label} {constraint.measure(self.costs):.3g}"
        return f"{self.policy} ({value} in {len(self.costs)} episodes, return {self.reward:.3g})"

    def to_dict(self, constraint: One | None) -> dict[str, Any]:
        """JSON data about a constraint on one cost."""
        found = None if constraint is None else measurement(constraint, self.costs)
        return {
            "policy": self.policy,
            "episodes": len(self.costs),
            "return_mean": self.reward,
            "cost_mean": float(self.costs.mean()),
            "cost_deviation": float(self.costs.std()),
            "least_limit": self.least_limit(constraint),
            "constraint_value": found and found.value,
            "constraint_interval": found and [found.lower, found.upper],
        }


@checked
def full_check(
    environment: Any,
    *,
    constraint: Constraint | None = None,
    episodes: Count = 128,
    progress: Progress = lambda done, total, what: True,
) -> dict[str, Any]:
    """Trace the environment, play its first steps twice, then up to `episodes` with random and with
    each constant action, until `progress` returns False. Returns JSON data."""
    name = getattr(environment, "__name__", None) or name_of_environment(environment)
    report: dict[str, Any] = {"env": name, "costs": []}
    try:
        progress(0, 1, "tracing reset and step")
        check_structure(environment)
        space = environment.action_space
        is_discrete = isinstance(space, Discrete)
        report |= {
            "settings": settings_of(environment),
            "observation_size": int(environment.observation_size),
            "actions": f"{space.count} choices" if is_discrete else f"[-1, 1] x {space.size}",
            "horizon": int(environment.horizon),
        }
        # Traced and compiled separately, so that random numbers drawn while tracing differ
        first = Recorder(environment)(SHORT, going=lambda: progress(0, 1, "the first steps"))
        recorder = Recorder(environment)
        played, record = play_simple(recorder, episodes, progress)
        findings = [*findings_in(environment, record), *same_again(first, record)]
        if late := int((~record.done[-1]).sum()):
            text = (
                f"{late} of {recorder.lanes} random episodes were cut off at step "
                f"{len(record.done) - 1} and are left out; --episodes N waits for up to "
                f"{LONGEST:,} steps."
            )
            findings.append(Finding("note", text))
        report["costs"] = [
            {
                "constraint": part
                and {"kind": part.kind, "label": part.label, "allowed": part.allowed},
                "policies": [one.to_dict(part) for one in own],
                "advice": advise(own, part),
            }
            for own, part in by_cost(played, constraint)
        ]
    except CanaryError as mistake:
        findings = [Finding("error", str(mistake))]
    ok = all(finding.level != "error" for finding in findings)
    return report | {"ok": ok, "findings": [asdict(finding) for finding in findings]}


def play_simple(
    recorder: Recorder, episodes: int, progress: Progress
) -> tuple[list[Played], Record]:
    """Play up to `episodes` with random and with every constant action, in turn, until `progress`
    returns False. Also returns the first record of random actions."""
    length = min(recorder.environment.horizon + 1, LONGEST)
    policies = {RANDOM: None} | constant_actions(recorder.environment.action_space)
    turns = list(product(range(-(-episodes // recorder.lanes)), policies))
    records: dict[str, list[Record]] = {}
    for done, (seed, name) in enumerate(turns):
        going = partial(progress, done, len(turns), name)
        if done and not going():
            break
        records.setdefault(name, []).append(recorder(length, seed, policies[name], going))
    played = [_whole(name, own, episodes) for name, own in records.items()]
    return [one for one in played if len(one.costs)], records[RANDOM][0]


def _whole(policy: str, records: list[Record], most: int) -> Played:
    """The episodes in these records that ended with finite numbers."""
    done = np.concatenate([record.done[-1] for record in records])
    costs, returns = (
        np.concatenate([record.masked(field).sum(0) for record in records])
        for field in ("cost", "reward")
    )
    good = done & np.isfinite(costs).all(1) & np.isfinite(returns[:, 0])
    costs = costs[:, 0] if costs.shape[1] == 1 else costs
    return Played(policy, costs[good][:most], returns[good, 0][:most])


def constant_actions(space: ActionSpace) -> dict[str, Any]:
    """At most `MOST_ACTIONS` actions of a discrete space; low, middle and high of a continuous one."""
    if isinstance(space, Discrete):
        chosen = np.unique(np.linspace(0, space.count - 1, min(space.count, MOST_ACTIONS)).round())
        return {f"action {int(action)}": np.int32(action) for action in chosen}
    ends = {"low": -1.0, "middle": 0.0, "high": 1.0}
    return {name: np.full(space.size, value, np.float32) for name, value in ends.items()}


def by_cost(
    played: list[Played], constraint: Constraint | None
) -> Iterator[tuple[list[Played], One | None]]:
    """For each cost, the episodes with this cost alone, and its constraint."""
    costs = played[0].costs if played else np.zeros((0, 0))
    if costs.ndim == 1:
        yield played, constraint  # type: ignore[misc]
        return
    parts = (None,) * costs.shape[1] if constraint is None else parts_of(constraint)
    for index in range(costs.shape[1]):
        yield [replace(one, costs=one.costs[:, index]) for one in played], parts[index]


def known_sentence(played: list[Played], constraint: Constraint) -> str:
    """A sentence: does a constant or random action stay within the constraint, with which return?"""
    if not played:
        return ""
    within = [one for one in played if constraint.measure(one.costs) <= constraint.allowed]
    if within:
        best = max(within, key=lambda one: one.reward)
        return f"{best.text(constraint)} stays within the limit"
    nearest = min(played, key=lambda one: constraint.measure(one.costs)).text(constraint)
    return f"no constant or random action stays within the limit; nearest is {nearest}"


def advise(played: list[Played], constraint: One | None) -> dict[str, Any]:
    """A sentence about the limit, if there is one, and limits worth trying, between the limit that
    the safest of these policies meets and the one that the policy with the highest return meets."""
    if not any(one.costs.any() for one in played):
        text = "No episode has a cost, so nothing can be said about limits; check the cost."
        return {"kind": "unknown", "limits": [], "text": text}
    best = max(played, key=lambda one: one.reward)
    low = min(one.least_limit(constraint) for one in played)
    high = best.least_limit(constraint)
    if high <= low:  # the safest policy earns the most: only a smaller limit is hard
        low = 0.0
    found = {float(f"{low + share * (high - low):.2g}") for share in (0.25, 0.5, 0.75)}
    limits = sorted(limit for limit in found if limit > 0)
    worth = f"Limits worth trying: {', '.join(f'{value:g}' for value in limits)}." if limits else ""
    if constraint is None:
        return {"kind": "no limit", "limits": limits, "text": worth}
    cheapest = min(float(one.costs.min()) for one in played)
    if constraint.measure(best.costs) <= constraint.allowed:
        kind, more = "trivial", f"and none of them earns more: the limit may be trivial. {worth}"
    elif cheapest > constraint.limit:
        kind, more = "hopeless", f"and no episode costs less than {cheapest:.4g}. {worth}"
    else:
        kind = "interesting"
        more = f"and {best.text(constraint)} earns the most: the limit is interesting."
    known = known_sentence(played, constraint)
    return {
        "kind": kind,
        "limits": limits,
        "text": f"{known[0].upper()}{known[1:]}, {more}".strip(),
    }
