"""The thorough check of `canary check-env`, with advice about the limit."""

from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from jaxtyping import Float

from canary.checking.behaviour import check_behaviour, same_again
from canary.checking.structure import Finding, check_structure, error
from canary.checking.yardstick import LONGEST, RANDOM, Progress, Yardstick, advise_each
from canary.constraints import Constraint
from canary.environments.protocol import Discrete, name_of_environment, settings_of
from canary.errors import CanaryError
from canary.values import Count, checked

QUANTILES = (0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95)


@dataclass(frozen=True)
class Report:
    """What a thorough check found."""

    name: str
    findings: list[Finding]
    facts: dict[str, Any] = field(default_factory=dict)
    episodes: dict[str, Any] = field(default_factory=dict)
    """Of random actions."""
    yardstick: list[dict[str, Any]] = field(default_factory=list)
    """Of random and of constant actions: return, cost and constraint."""
    advice: dict[str, Any] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        return all(finding.level != "error" for finding in self.findings)

    def to_dict(self) -> dict[str, Any]:
        return {
            "env": self.name,
            "ok": self.ok,
            "findings": [asdict(finding) for finding in self.findings],
            **self.facts,
            "episodes": self.episodes,
            "yardstick": self.yardstick,
            "advice": self.advice,
        }


@checked
def full_check(
    environment: Any,
    *,
    constraint: Constraint | None = None,
    episodes: Count = 128,
    progress: Progress = lambda done, total, what: None,
) -> Report:
    """Trace the environment, play whole random episodes twice, then up to `episodes` of random and of
    each constant action, until `progress` returns False."""
    is_class = isinstance(environment, type)
    name = environment.__name__ if is_class else name_of_environment(environment)
    progress(0, 1, "tracing reset and step")
    findings = check_structure(environment)
    if any(finding.level == "error" for finding in findings):
        return Report(name, findings)
    space = environment.action_space
    is_counted = isinstance(space, Discrete)
    facts = {
        "settings": settings_of(environment),
        "observation_size": int(environment.observation_size),
        "actions": f"{space.count} choices" if is_counted else f"[-1, 1] x {space.size}",
        "horizon": int(environment.horizon),
        "normalise_observation": environment.normalise_observation,
    }
    progress(0, 1, f"random episodes of up to {environment.horizon} steps")
    try:
        yardstick = Yardstick(environment, episodes)
        record, again = yardstick.batch(RANDOM, 0), yardstick.batch(RANDOM, 0)
        findings += [*check_behaviour(environment, record), *same_again(record, again)]
        played = yardstick.play(progress)
    except CanaryError as mistake:  # the environment failed on the host
        return Report(name, [*findings, error("step", str(mistake))], facts)
    late = int((~record.finished).sum())
    if late and environment.horizon > LONGEST:
        text = f"{late} episodes were not over after {LONGEST} steps and are left out."
        findings.append(Finding("note", "horizon", text))
    if not played or played[0].policy != RANDOM:
        return Report(name, findings, facts)
    random = played[0]
    costs = [describe_costs(own) for own in random.costs.reshape(len(random.costs), -1).T]
    summary = {
        **({"cost": costs[0]} if random.costs.ndim == 1 else {"costs": costs}),
        "return_mean": random.reward,
        "length_mean": float(record.taken.sum(0)[record.finished].mean()),
        "terminated_share": float(record.states.terminated[-1][record.finished].mean()),
    }
    measured = [one.to_dict(constraint) for one in played]
    return Report(name, findings, facts, summary, measured, advise_each(played, constraint))


def describe_costs(costs: Float[np.ndarray, "episode"]) -> dict[str, Any]:
    """Number, mean, deviation, range and quantiles."""
    return {
        "episodes": len(costs),
        "mean": float(costs.mean()),
        "deviation": float(costs.std()),
        "smallest": float(costs.min()),
        "largest": float(costs.max()),
        "quantiles": {f"{share:g}": float(np.quantile(costs, share)) for share in QUANTILES},
    }
