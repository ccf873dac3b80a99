"""Check a certificate by itself: everything that it says is recomputed from what it contains.

The distinct costs and their order determine every bound, every verdict, every sentence and the
moment when the test stopped; the settings determine whether a shift changes anything. What depends
on nothing else in the certificate is compared with its run (`compare`), told by playing the
episodes again, or a label (LABELS) that nothing rests on.
"""

import math
from dataclasses import asdict, fields
from typing import Any

import numpy as np

from canary.certification import order
from canary.certification.certificate import (
    READABLE,
    Certificate,
    Result,
    constraint_of,
    content_hash,
    methods_of,
    summarise,
)
from canary.certification.certify import is_decided, unchanged
from canary.certification.plan import Plan
from canary.certification.verdict import Assessment, Evidence, assess
from canary.constraints import Constraint
from canary.errors import CanaryError

TOLERANCE = 1e-6  # relative: other versions of the numerical libraries may round differently
MOST_EPISODES = (
    10**8
)  # that a certificate can list: more would not fit into the memory of whoever checks it
LABELS = ("origin.run", "origin.earlier", "versions", "time")
"""Free text: nothing in a certificate depends on it, and only a signature keeps it from being
changed."""
ORIGIN = {"run", "algorithm", "updates", "earlier"}
CHANGES = "environment_changes"
"""In the origin of a certificate of an environment that was accepted although it is not the run's
own: how it differs."""


def verify(data: dict[str, Any]) -> list[str]:
    """Everything that is wrong with a certificate in itself, a sentence each; an empty list means
    it is consistent."""
    try:
        if (reason := unreadable(data)) is not None:
            return [reason]
        problems = _check_shape(data)
        if content_hash(data) != data.get("sha256"):
            problems.append(
                "The content does not match its SHA-256 hash: it was changed after it was issued."
            )
        return problems or _check_grid(data) or _check_statistics(data)
    except CanaryError as error:
        return [str(error)]
    except (
        KeyError,
        TypeError,
        ValueError,
        AttributeError,
        OverflowError,
        MemoryError,
        RecursionError,
    ) as error:
        return [f"The certificate is malformed ({type(error).__name__}: {str(error)[:200]})."]


def unreadable(data: dict[str, Any]) -> str | None:
    """Why this version does not read a certificate of that format, and what to do about it."""
    found = data.get("format")
    if type(found) is int and found in READABLE:
        return None
    known = f"{', '.join(map(str, READABLE[:-1]))} and {READABLE[-1]}"
    if type(found) is not int or found < 1:
        return f"It names {found!r:.40} as its format, which canary never wrote; this version reads {known}."
    if found > max(READABLE):
        return f"It has the format {found}, of a newer version of canary than this one, which reads {known}: update canary."
    return (
        f"It has the format {found}, which an earlier version of canary wrote and this one, which "
        f"reads {known}, does not "
        "check. Nothing is known to be wrong with it: check it with the version that made it (its "
        "`versions` and `time` "
        "say which), or certify the policy again: canary certify RUN."
    )


def compare(data: dict[str, Any], facts: dict[str, Any], digests: dict[int, str]) -> list[str]:
    """How a certificate differs from a run with these facts (by field) and policies (digest by
    seed)."""
    problems = []
    for name, value in facts.items():
        found = data["origin"].get(name, []) if name in ORIGIN | {CHANGES} else data[name]
        if found == value:
            continue
        if isinstance(value, dict):
            differing = sorted(
                key for key in {**value, **found} if value.get(key) != found.get(key)
            )
            problems.append(f"The {name} differ from the run's in {', '.join(differing)}.")
        else:
            problems.append(f"The {name} is {found!r} here but {value!r} in the run.")
    certified = {
        (result["seed"], result["evidence"]["policy_sha256"]): None for result in data["results"]
    }
    for seed, digest in certified:
        if seed not in digests:
            problems.append(f"There is no policy of seed {seed} to compare with.")
        elif digests[seed] != digest:
            problems.append(
                f"The policy of seed {seed} is not the one that was certified: its digest differs."
            )
    return problems


def _check_shape(data: dict[str, Any]) -> list[str]:
    """Fields that nobody knows could say anything, and fields of another type could mean
    anything."""
    known = {field.name for field in fields(Certificate)} | {"sha256"}
    known -= {"constraint"} if data["format"] < 4 else set()
    odd = [name for name in set(data) ^ known if name != "signature"]
    problems = [f"It has a field {name!r} too many or too few." for name in sorted(odd)]
    if odd:
        return problems
    if data["methods"] != methods_of(constraint_of(data).kind):
        problems.append("The methods it names are not those that this version computes.")
    for name in ("limit", "epsilon", "cost_discount"):
        if not isinstance(data[name], float):
            problems.append(
                f"Its {name} is {data[name]!r}, which is no number of the kind that is written "
                "there."
            )
    seed = data["evaluation_seed"]
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 2**31:
        problems.append(f"Its evaluation seed is {seed!r}, which is no seed.")
    texts = [data["environment"], data["time"], *data["versions"], *data["versions"].values()]
    changes = data["origin"].get(CHANGES, ["none"])
    texts += changes if isinstance(changes, list) and changes else [None]
    if (
        not all(isinstance(text, str) for text in texts)
        or set(data["origin"]) - {CHANGES} != ORIGIN
    ):
        problems.append(
            "Its labels (environment, time, versions, origin) are not those that canary writes."
        )
    parts = {"changes", "seed", "evidence", "assessment"}
    if not all(isinstance(result, dict) and set(result) == parts for result in data["results"]):
        problems.append("A result has other parts than seed, changes, evidence and assessment.")
    return problems


def _check_grid(data: dict[str, Any]) -> list[str]:
    """The results must be every seed in the unchanged environment, then every seed under every
    change."""
    results, settings = data["results"], data["settings"]
    seeds = [result["seed"] for result in results if not result["changes"]]
    rows = [result["changes"] for result in results if result["seed"] == seeds[0]] if seeds else []
    if not seeds or [(r["changes"], r["seed"]) for r in results] != [
        (row, seed) for row in rows for seed in seeds
    ]:
        return [
            "Its results are not every seed in the unchanged environment, and then under every "
            "change."
        ]
    problems = []
    if any(isinstance(seed, bool) or not isinstance(seed, int) or seed < 0 for seed in seeds):
        problems.append("A seed is not a whole number.")
    if len(set(seeds)) < len(seeds) or any(row in rows[:index] for index, row in enumerate(rows)):
        problems.append("The same statement is made twice.")
    for row in rows[1:]:
        odd = [
            name
            for name, value in row.items()
            if not (_is_number(value) and _is_number(settings.get(name)))
        ]
        if odd:
            problems.append(
                f"The environment has no numeric setting {odd[0]!r} that could be changed."
            )
        elif all(unchanged(settings[name], value) for name, value in row.items()):
            named = ", ".join(f"{name} = {value:g}" for name, value in row.items())
            problems.append(
                f"The change {named} changes nothing: these are the environment's own settings."
            )
    if data["plan"]["statements"] != len(results):
        problems.append(
            f"It makes {len(results)} statements but was corrected for "
            f"{data['plan']['statements']}."
        )
    return problems


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _check_statistics(data: dict[str, Any]) -> list[str]:
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
        verdict, sentence = summarise(tuple(results), plan, constraint)
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
