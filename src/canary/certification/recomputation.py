"""Recompute a certificate's statistics: the listed costs and their order determine every bound,
every verdict, every sentence and the moment when the test stopped."""

import math
from dataclasses import asdict
from typing import Any

import numpy as np

from canary.certification import order
from canary.certification.certificate import Result, constraint_of, summarise
from canary.certification.certify import is_decided
from canary.certification.plan import Plan
from canary.certification.verdict import Assessment, Evidence, assess
from canary.constraints import Constraint
from canary.errors import CanaryError

TOLERANCE = 1e-6  # relative: other versions of the numerical libraries may round differently
MOST_EPISODES = 10**8  # in a certificate: more would not fit into the memory of whoever checks it


def check_statistics(data: dict[str, Any]) -> list[str]:
    """Recompute every bound and verdict from the listed costs."""
    plan, constraint = Plan(**data["plan"]), constraint_of(data)
    problems, results = [], []
    for stored in data["results"]:
        entries: dict[str, Any] = dict(stored["evidence"])
        evidence = Evidence(**(entries | {"costs": tuple(map(tuple, entries["costs"]))}))
        name = describe(stored["seed"], stored["changes"])
        try:
            found = _check_evidence(evidence, plan, constraint)
            again = assess(evidence, plan, constraint) if not found else None
        except CanaryError as error:
            found, again = [str(error)], None
        problems += [f"{name}: {problem}" for problem in found]
        if again is not None:
            problems += [
                f"{name}: {problem}" for problem in _differences(again, stored["assessment"])
            ]
            results.append(
                Result(
                    seed=stored["seed"],
                    changes=stored["changes"],
                    evidence=evidence,
                    assessment=again,
                )
            )
    if len(results) == len(data["results"]):
        changes = data["origin"].get("environment_changes", ())
        verdict, sentence = summarise(tuple(results), plan, constraint, changes)
        if (verdict, sentence) != (data["verdict"], data["sentence"]):
            problems.append(
                f"The verdict is {data['verdict']} but recomputing it gives {verdict}: {sentence}"
            )
    return problems


def describe(seed: int, changes: dict[str, int | float]) -> str:
    """A result's name in a sentence."""
    return f"Seed {seed}" + (
        f" ({', '.join(f'{k} = {v:g}' for k, v in changes.items())})" if changes else ""
    )


def _differences(again: Assessment, stored: dict[str, Any]) -> list[str]:
    expected = asdict(again)
    odd = sorted(set(stored) ^ set(expected))
    return [f"{key!r} is a number too many or too few." for key in odd] or [
        f"{key} is {stored[key]!r} but recomputing it gives {value!r}."
        for key, value in expected.items()
        if not _same(value, stored[key])
    ]


def _check_evidence(evidence: Evidence, plan: Plan, constraint: Constraint) -> list[str]:
    """Whether the episodes are those that the plan asked for, and whether the test stopped when it
    had to."""
    values, counts = [value for value, _ in evidence.costs], [count for _, count in evidence.costs]
    if values != sorted(set(values)) or not all(
        type(value) is float and math.isfinite(value) for value in values
    ):
        return ["its costs are not distinct ascending numbers."]
    if not all(type(count) is int and count > 0 for count in counts):
        return ["the numbers of its costs are not positive whole numbers."]
    episodes, planned = sum(counts), plan.episodes or 0
    if episodes > planned or episodes > MOST_EPISODES:
        return [
            f"it counts {episodes:,} episodes, more than the {min(planned, MOST_EPISODES):,} "
            "planned."
        ]
    if type(evidence.looks) is not int or evidence.looks != -(-episodes // plan.batch):
        return [
            f"{episodes:,} episodes in batches of {plan.batch:,} are not {evidence.looks!r} looks."
        ]
    problems = []
    means = (evidence.return_mean, evidence.length_mean)
    if any(type(mean) is not (float if episodes else type(None)) for mean in means):
        problems.append("its mean return and length are not those of the episodes it counts.")
    costs = np.array(values, float)[order.decode(evidence.order, counts)]
    stopped = _stopping(costs, plan, constraint)
    if isinstance(stopped, str):
        return [*problems, stopped]
    if (evidence.interrupted is not stopped) or evidence.method != (
        "anytime" if plan.early_stop or stopped else "fixed"
    ):
        problems.append(
            "its method is not the one that the plan prescribes for the episodes it counts."
        )
    return problems


def _stopping(costs: np.ndarray, plan: Plan, constraint: Constraint) -> bool | str:
    """Whether the test was interrupted, which its episodes tell; or a sentence if it went on after
    its verdict."""
    complete = len(costs) == plan.episodes
    if not plan.early_stop or not len(costs):
        return not complete
    ends = np.minimum(np.arange(plan.batch, len(costs) + plan.batch, plan.batch), len(costs))
    for look, end in enumerate(ends[:-1], 1):
        # Both ways of rounding must agree that it could have stopped here.
        if all(
            is_decided(costs[:end], look, plan, constraint, sign * TOLERANCE) for sign in (-1, 1)
        ):
            return f"it went on after {end:,} episodes, when its verdict was clear."
    return not complete and not is_decided(costs, len(ends), plan, constraint)


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, float) and type(other) in (int, float):
        return math.isclose(one, other, rel_tol=TOLERANCE, abs_tol=1e-9)
    return type(one) is type(other) and one == other
