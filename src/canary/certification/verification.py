"""Check a certificate by itself: everything that it says is recomputed from what it contains.

The costs determine every bound and verdict (`recomputation`); the settings determine whether a
shift changes anything. What depends on nothing else in the certificate is compared with its run
(`compare`), told by playing the episodes again, or a label (LABELS) that nothing rests on.
"""

from dataclasses import fields
from typing import Any

from canary.certification.certificate import (
    READABLE,
    Certificate,
    constraint_of,
    content_hash,
    methods_of,
)
from canary.certification.certify import unchanged
from canary.certification.recomputation import check_statistics
from canary.errors import CanaryError

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
        return problems or _check_grid(data) or check_statistics(data)
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
        f"reads {known}, does not check. Nothing is known to be wrong with it: check it with the "
        "version that made it (its `versions` and `time` say which), or certify the policy again: "
        "canary certify RUN."
    )


def compare(data: dict[str, Any], facts: dict[str, Any], digests: dict[int, str]) -> list[str]:
    """How a certificate differs from a run with these facts (by field) and policies (digest by
    seed)."""
    stated, here = data["origin"].get(CHANGES, []), facts.get(CHANGES, [])
    if stated != here:
        return [_other_environment(stated, here)]
    problems = []
    for name, value in facts.items():
        if name == CHANGES:
            continue
        found = data["origin"].get(name) if name in ORIGIN else data[name]
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


def _other_environment(stated: list[str], here: list[str]) -> str:
    """That the environment at hand is not the one that a certificate is about."""
    about = (
        f"differs from that of training ({'; '.join(stated)})" if stated else "is that of training"
    )
    found = f"differs from that ({'; '.join(here)})" if here else "does not differ"
    return (
        f"The environment that it is about {about}, the one here {found}; check it with the one "
        "that it is about (in Python: verify_file(..., environment=...))."
    )


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
