"""The thorough check of `canary check-env`, with advice about the limit."""

from dataclasses import asdict
from typing import Any

import numpy as np
from jaxtyping import Float

from canary.checking.behaviour import Finding, check_behaviour, same_again
from canary.checking.probe import PIECE, make_probe
from canary.checking.structure import Mistake, check_structure
from canary.checking.yardstick import LONGEST, RANDOM, Progress, advise_each, play_simple
from canary.constraints import Constraint
from canary.environments.protocol import Discrete, name_of_environment, settings_of
from canary.errors import CanaryError
from canary.values import Count, checked

QUANTILES = (0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95)


@checked
def full_check(
    environment: Any,
    *,
    constraint: Constraint | None = None,
    episodes: Count = 128,
    progress: Progress = lambda done, total, what: None,
) -> dict[str, Any]:
    """Trace the environment, then play up to `episodes` of random and of each constant action, until
    `progress` returns False. The first steps are played twice. Returns JSON data."""
    is_class = isinstance(environment, type)
    name = environment.__name__ if is_class else name_of_environment(environment)
    nothing: dict[str, Any] = {"episodes": {}, "yardstick": [], "advice": {}}

    def report(findings: list[Finding], **known: Any) -> dict[str, Any]:
        ok = all(finding.level != "error" for finding in findings)
        found = [asdict(finding) for finding in findings]
        return {"env": name, "ok": ok, "findings": found, **nothing, **known}

    progress(0, 1, "tracing reset and step")
    try:
        check_structure(environment)
    except Mistake as mistake:
        return report([Finding("error", mistake.field, str(mistake))])
    space = environment.action_space
    is_counted = isinstance(space, Discrete)
    facts = {
        "settings": settings_of(environment),
        "observation_size": int(environment.observation_size),
        "actions": f"{space.count} choices" if is_counted else f"[-1, 1] x {space.size}",
        "horizon": int(environment.horizon),
        "normalise_observation": environment.normalise_observation,
    }
    try:
        play = make_probe(environment)
        start = play(PIECE, going=lambda: progress(0, 1, "the first steps") is not False)
        played, record = play_simple(environment, play, episodes, progress)
    except CanaryError as mistake:  # the environment failed on the host
        return report([Finding("error", "step", str(mistake))], **facts)
    findings = [*check_behaviour(environment, record), *same_again(start, record)]
    if late := int((~record.finished).sum()):
        text = (
            f"{late} of {len(record.finished)} random episodes did not end within "
            f"{len(record.taken)} steps and are left out; --episodes N waits for {LONGEST:,} steps."
        )
        findings.append(Finding("note", "horizon", text))
    if not record.finished.any() or not played or played[0].policy != RANDOM:
        return report(findings, **facts)
    costs = played[0].costs
    each = [describe_costs(own) for own in costs.reshape(len(costs), -1).T]
    summary = {
        **({"cost": each[0]} if costs.ndim == 1 else {"costs": each}),
        "return_mean": played[0].reward,
        "length_mean": float(record.taken.sum(0)[record.finished].mean()),
        "terminated_share": float(record.states.terminated[-1][record.finished].mean()),
    }
    measured = [one.to_dict(constraint) for one in played]
    advice = advise_each(played, constraint)
    return report(findings, **facts, episodes=summary, yardstick=measured, advice=advice)


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
