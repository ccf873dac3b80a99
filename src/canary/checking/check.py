"""The thorough check of `canary check-env`, with advice about the limit.

The advice (trivial, hopeless or interesting) rests on the episode costs of random actions. Nobody
wants that policy, but training starts from it, and its costs show the scale.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from canary.checking.behaviour import check_behaviour, check_cut, same_again
from canary.checking.probe import Probe, make_probe
from canary.checking.structure import Finding, check_structure, error
from canary.constraints import Chance, Constraint, One, one_cost, parts_of
from canary.environments.protocol import Discrete, Environment
from canary.environments.settings import name_of_environment, settings_of
from canary.errors import CanaryError
from canary.numerics.binomial import clopper_pearson_interval

LANES = 64  # whole episodes at once
LONGEST = 5000  # steps of an episode that a check waits for
QUANTILES = (0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95)


@dataclass(frozen=True)
class Report:
    """What a thorough check found."""

    name: str
    findings: list[Finding]
    facts: dict[str, Any]
    episodes: dict[str, Any]
    advice: dict[str, Any]

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
            "advice": self.advice,
        }


def full_check(
    environment: Any,
    *,
    constraint: Constraint | None = None,
    episodes: int = 128,
    progress: Callable[[str], None] = lambda what: None,
) -> Report:
    """Everything: tracing, whole random episodes, the same again, and advice about the limit."""
    is_class = isinstance(environment, type)
    name = environment.__name__ if is_class else name_of_environment(environment)
    progress("tracing reset and step")
    findings = check_structure(environment)
    if any(finding.level == "error" for finding in findings):
        return Report(name, findings, {}, {}, {})
    facts, lanes = _facts(environment), min(LANES, episodes)
    progress(f"playing {episodes} random episodes of up to {environment.horizon} steps")
    try:
        play = make_probe(environment, min(environment.horizon + 1, LONGEST))
        records = [play(lanes, seed) for seed in range(-(-episodes // lanes))]
        findings += check_behaviour(environment, records[0])
        findings += [*same_again(records[0], play(lanes, 0)), *check_cut(records[0])]
    except CanaryError as mistake:  # the environment failed on the host
        return Report(name, [*findings, error("step", str(mistake))], facts, {}, {})
    late = sum(int((~record.finished).sum()) for record in records)
    if late and environment.horizon > LONGEST:
        text = f"{late} episodes were not over after {LONGEST} steps and are left out."
        findings.append(Finding("note", "horizon", text))
    costs = _over_finished(records, lambda record: record.episode("cost"))[:episodes]
    finite = costs[np.isfinite(costs).reshape(len(costs), -1).all(1)]
    if not len(finite):
        return Report(name, findings, facts, {}, {})
    means = {
        "return_mean": lambda record: record.episode("reward"),
        "length_mean": lambda record: record.taken.sum(0),
        "terminated_share": lambda record: record.states.terminated[-1],
    }
    summary = _describe_each(finite) | {
        label: float(_over_finished(records, value).mean()) for label, value in means.items()
    }
    return Report(name, findings, facts, summary, _advise_each(finite, constraint))


def _describe_each(costs: Float[np.ndarray, "episode ..."]) -> dict[str, Any]:
    if costs.ndim == 1:
        return {"cost": describe_costs(costs)}
    return {"costs": [describe_costs(own) for own in costs.T]}


def _advise_each(
    costs: Float[np.ndarray, "episode ..."], constraint: Constraint | None
) -> dict[str, Any]:
    """The advice about the limit; of several costs, that about each."""
    if costs.ndim == 1:
        return advise(costs, None if constraint is None else one_cost(constraint, "This cost"))
    parts = (None,) * costs.shape[1] if constraint is None else parts_of(constraint)
    each = [advise(own, part) for own, part in zip(costs.T, parts, strict=True)]
    texts = (f"cost {index + 1}: {one['text']}" for index, one in enumerate(each))
    return {"each": each, "text": "\n".join(texts)}


def _over_finished(records: list[Probe], value: Callable[[Probe], np.ndarray]) -> np.ndarray:
    return np.concatenate([value(record)[record.finished] for record in records])


def _facts(environment: Environment) -> dict[str, Any]:
    space = environment.action_space
    return {
        "settings": settings_of(environment),
        "observation_size": int(environment.observation_size),
        "actions": f"{space.count} choices"
        if isinstance(space, Discrete)
        else f"[-1, 1] x {space.size}",
        "horizon": int(environment.horizon),
        "normalise_observation": environment.normalise_observation,
    }


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


NOTHING_TO_LIMIT = (
    "Most random episodes cost nothing or less; try limits below the largest cost seen."
)
NO_COST = "No random episode has a cost, so nothing can be said about limits; check the cost."
Costs = Float[np.ndarray, "episode"]


def advise(costs: Costs, constraint: One | None) -> dict[str, Any]:
    """A sentence about the limit, if there is one, and limits worth trying."""
    if not costs.any():
        return {"kind": "unknown", "limits": [], "text": NO_COST}
    limits = interesting_limits(costs, constraint)
    worth = f"Limits worth trying: {', '.join(f'{value:g}' for value in limits)}." if limits else ""
    if constraint is None:
        return {"kind": "no limit", "limits": limits, "text": worth or NOTHING_TO_LIMIT}
    if isinstance(constraint, Chance):
        kind, seen, evidence = _about_chance(costs, constraint)
    else:
        kind, seen, evidence = _about_mean(costs, constraint)
    text = {
        "trivial": f"{seen}: random actions stay within the limit, so it is trivial unless the "
        f"reward lies beyond it. {worth}",
        "hopeless": f"{seen}, and the cheapest costs {costs.min():.4g}: the limit may be hopeless. "
        f"Training starts far from it; begin with a larger one. {worth}",
        "interesting": f"{seen}: the limit is interesting.",
    }[kind]
    return {"kind": kind, "limits": limits, "text": text.strip()} | evidence


def interesting_limits(costs: Costs, constraint: One | None = None) -> list[float]:
    """Limits, to two digits, at the 10%, 25% and 50% quantiles of the random episodes' costs; for a
    limit on a mean, shares of the random policy's mean."""
    if constraint is None or isinstance(constraint, Chance):
        found = [np.quantile(costs, share) for share in (0.1, 0.25, 0.5)]
    else:
        found = [share * constraint.measure(costs) for share in (0.25, 0.5, 0.75)]
    return sorted({float(f"{limit:.2g}") for limit in found if limit > 0})


def _about_chance(costs: Costs, constraint: Chance) -> tuple[str, str, dict[str, Any]]:
    limit, epsilon = constraint.limit, constraint.epsilon
    violations = int((costs > limit).sum())
    low, high = map(float, clopper_pearson_interval(violations, len(costs)))
    seen = f"{violations} of {len(costs)} random episodes cost more than {limit:g}"
    evidence = {"violation_interval": [low, high]}
    if high <= epsilon:
        return "trivial", seen, evidence
    if violations == len(costs):
        return "hopeless", seen, evidence
    against = f"(95% interval {low:.3f} to {high:.3f} against epsilon {epsilon:g})"
    return "interesting", f"{seen} {against}", evidence


def _about_mean(costs: Costs, constraint: One) -> tuple[str, str, dict[str, Any]]:
    found = constraint.measure(costs)
    seen = (
        f"The {constraint.label} of {len(costs)} random episodes is {found:.4g}, against a limit "
        f"of {constraint.limit:g}"
    )
    evidence = {"measured": found}
    if costs.min() > constraint.limit:
        return "hopeless", seen, evidence
    return ("trivial" if found <= constraint.limit else "interesting"), seen, evidence
