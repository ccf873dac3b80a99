"""The thorough check of `canary check-env`, and the short record that every training looks at first
(runs/opening.py).

The check also advises about the limit: trivial, hopeless or interesting. It judges by the episode
cost under random actions. Those are no policy that anybody wants, but training starts from them,
and their costs show the scale.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from canary.checking.advice import advise
from canary.checking.behaviour import check_behaviour, check_cut, same_again
from canary.checking.findings import Finding, error, note
from canary.checking.probe import Probe, make_probe
from canary.checking.structure import check_structure
from canary.constraints import Constraint
from canary.environments.protocol import Discrete, Environment
from canary.environments.settings import name_of_environment, settings_of
from canary.errors import CanaryError

FAST_LANES, FAST_STEPS = 16, 32
LANES = 64  # whole episodes at once
LONGEST = 5000  # steps of an episode that a check waits for


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
            "findings": [finding.to_dict() for finding in self.findings],
            **self.facts,
            "episodes": self.episodes,
            "advice": self.advice,
        }


def short_record(environment: Environment) -> Probe:
    return make_probe(environment, min(environment.horizon + 1, FAST_STEPS))(FAST_LANES, 0)


def full_check(
    environment: Any,
    *,
    constraint: Constraint | None = None,
    episodes: int = 128,
    progress: Callable[[str], None] = lambda what: None,
) -> Report:
    """Everything: tracing, whole random episodes, the same again, and advice about the limit."""
    name = (
        environment.__name__ if isinstance(environment, type) else name_of_environment(environment)
    )
    progress("tracing reset and step")
    findings = check_structure(environment)
    if any(finding.level == "error" for finding in findings):
        return Report(name, findings, {}, {}, {})
    length = min(environment.horizon + 1, LONGEST)
    lanes = min(LANES, episodes)
    progress(f"playing {episodes} random episodes of up to {environment.horizon} steps")
    try:
        play = make_probe(environment, length)
        records = [play(lanes, seed) for seed in range(-(-episodes // lanes))]
        findings += check_behaviour(environment, records[0])
        findings += [*same_again(records[0], play(lanes, 0)), *check_cut(records[0])]
    except CanaryError as mistake:  # the environment failed outside the program
        return Report(name, [*findings, error("step", str(mistake))], _facts(environment), {}, {})
    finished = [record.episode("cost")[record.finished] for record in records]
    costs = np.concatenate(finished)[:episodes]
    if len(costs) < lanes * len(records):
        cut = sum(int((~record.finished).sum()) for record in records)
        if environment.horizon > LONGEST:
            findings.append(
                note(
                    "horizon",
                    f"{cut} episodes were not over after {LONGEST} steps and are left out.",
                )
            )
    finite = costs[np.isfinite(costs)]
    if not len(finite):
        return Report(name, findings, _facts(environment), {}, {})
    summary = {"cost": describe_costs(finite), **_lengths(records)}
    return Report(name, findings, _facts(environment), summary, advise(finite, constraint))


def _lengths(records: list[Probe]) -> dict[str, Any]:
    done = [record.finished for record in records]
    lengths = np.concatenate(
        [record.taken.sum(0)[over] for record, over in zip(records, done, strict=True)]
    )
    returns = np.concatenate(
        [record.episode("reward")[over] for record, over in zip(records, done, strict=True)]
    )
    ended = np.concatenate(
        [r.states.terminated[-1][over] for r, over in zip(records, done, strict=True)]
    )
    return {
        "return_mean": float(returns.mean()),
        "length_mean": float(lengths.mean()),
        "terminated_share": float(ended.mean()),
    }


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


QUANTILES = (0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95)


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
