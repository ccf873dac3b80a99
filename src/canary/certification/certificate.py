"""The certificate: everything that was played and found, as plain data that anybody can check.

`verify` issues it again from its costs or from its episodes played again, and `signature` shows who
issued it. The hash is no signature: it shows damage and careless edits.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from canary.certification.plan import Plan
from canary.certification.verdict import Assessment, PlayedEpisodes, Verdict, joint, overall
from canary.constraints import Chance, Constraint, Joint, Kind, One, from_dict

FORMAT = 5


@dataclass(frozen=True, kw_only=True)
class PolicyResult:
    """One policy in one environment: that of training, or the same with some settings changed."""

    seed: int
    changes: dict[str, int | float]
    evidence: PlayedEpisodes
    assessment: Assessment


@dataclass(frozen=True, kw_only=True)
class PromiseResult(PolicyResult):
    """The same about one of several constraints."""

    promise: int
    """Its number, from 1."""


@dataclass(frozen=True, kw_only=True)
class Certificate:
    environment: str
    settings: dict[str, Any]
    constraint: Kind | list[Kind]
    """With several costs, here and in the next two, a list with one entry for each."""
    limit: float | list[float]
    epsilon: float | list[float]
    """The share of episodes that the constraint looks at: 1 for the mean."""
    cost_discount: float
    plan: Plan
    evaluation_seed: int
    results: tuple[PolicyResult, ...]
    """One per statement: every seed in the unchanged environment, which decides the verdict, then
    every seed under each change; of several constraints, each about the same episodes."""
    verdict: Verdict
    sentence: str
    environment_check: dict[str, Any]
    """`compared`: whether the environment was compared with that of training; `sentence`: how, or
    why not; `file_sha256`: of the file that defines it, if it is not canary's own."""
    origin: dict[str, Any]
    """Where the policies come from: run, algorithm, updates, and how many certificates the run had
    before; `environment_changes`, if a changed environment was accepted."""
    versions: dict[str, str]
    time: str
    format: int = FORMAT


def terms(constraint: Constraint) -> dict[str, Any]:
    """The fields of a certificate that state its constraint."""
    if isinstance(constraint, Joint):
        each = [terms(part) for part in constraint.parts]
        return {name: [one[name] for one in each] for name in each[0]}
    return {"constraint": constraint.kind, "limit": constraint.limit, "epsilon": constraint.share}


def constraint_of(data: dict[str, Any]) -> Constraint:
    """The constraint that a certificate is about."""
    if isinstance(data["constraint"], list):
        names = ("constraint", "limit", "epsilon")
        rows = zip(*(data[name] for name in names), strict=True)
        parts: Any = (constraint_of(dict(zip(names, row, strict=True))) for row in rows)
        return Joint(tuple(parts))
    share = {} if data["constraint"] == "mean" else {"epsilon": data["epsilon"]}
    return from_dict({"kind": data["constraint"], "limit": data["limit"], **share})


def results_of(
    seed: int,
    changes: dict[str, int | float],
    found: Sequence[tuple[PlayedEpisodes, Assessment]],
) -> list[PolicyResult]:
    """The results of one policy in one environment, for each constraint."""
    about = [{"seed": seed, "changes": changes, "evidence": e, "assessment": a} for e, a in found]
    if len(about) == 1:
        return [PolicyResult(**about[0])]
    return [PromiseResult(**one, promise=index + 1) for index, one in enumerate(about)]


def summarise(
    results: Sequence[PolicyResult],
    plan: Plan,
    constraint: Constraint | None = None,
    changes: Sequence[str] = (),
) -> tuple[Verdict, str]:
    """The verdict in the unchanged environment, and a sentence about all results. `changes` are
    accepted differences from the environment of training."""
    nominal: dict[int, list[Assessment]] = {}  # by seed; of several constraints, of each
    for result in results:
        if not result.changes:
            nominal.setdefault(result.seed, []).append(result.assessment)
    place = "the environment as it is now" if changes else "the environment they were trained in"
    is_chance = constraint is None or isinstance(constraint, Chance)
    verdict, sentence = overall(
        [joint(each) for each in nominal.values()],
        list(nominal),
        plan,
        "the limit" if is_chance else constraint.text,
        place,
    )
    shifted = [result.assessment.verdict for result in results if result.changes]
    parts = [
        f"{shifted.count(verdict)} {phrase}"
        for verdict, phrase in (
            ("SATISFIED", "stay within the limit"),
            ("VIOLATED", "break it"),
            ("UNDECIDED", "are undecided"),
        )
        if verdict in shifted
    ]
    if shifted:
        sentence += f" Of {len(shifted)} statements about changed settings, {', '.join(parts)}."
    return verdict, f"{sentence} {changed_sentence(changes)}" if changes else sentence


def changed_sentence(changes: Sequence[str]) -> str:
    """That a changed environment was accepted, and how it differs from that of training."""
    return f"This is not the environment of training: {'; '.join(changes)}."


def results_about(data: dict[str, Any], constraint: One) -> list[dict[str, Any]]:
    """The results of a certificate that are about one of its constraints."""
    return [result for result in data["results"] if result.get("promise") == constraint.number]


def result_name(result: dict[str, Any]) -> str:
    """The seed, the changed settings and the cost of a result."""
    changes = [f"{name} = {value:g}" for name, value in result["changes"].items()]
    cost = [f"cost {result['promise']}"] if "promise" in result else []
    return ", ".join([f"seed {result['seed']}", *changes, *cost])


def commitment(
    plan: dict[str, Any], terms: dict[str, Any], statements: Sequence[tuple[dict[str, Any], int]]
) -> tuple[int, ...]:
    """Four numbers that stand for everything decided before the first episode: plan, constraint
    and the (changes, seed) of each statement. All episodes are drawn from them, so another plan has
    other episodes."""
    decided = {"plan": plan, **terms, "statements": statements}
    text = json.dumps(decided, sort_keys=True, separators=(",", ":"), allow_nan=False)
    digest = hashlib.sha256(text.encode()).digest()
    return tuple(int.from_bytes(digest[place : place + 4], "big") for place in range(0, 16, 4))


def to_dict(certificate: Certificate) -> dict[str, Any]:
    """Plain data with the hash of its content."""
    data = json.loads(json.dumps(asdict(certificate), allow_nan=False))
    return data | {"sha256": content_hash(data)}


def content(data: dict[str, Any]) -> bytes:
    """Everything but the hash and the signature, as JSON with sorted keys and no spaces."""
    kept = {key: value for key, value in data.items() if key not in ("sha256", "signature")}
    return json.dumps(kept, sort_keys=True, separators=(",", ":")).encode()


def content_hash(data: dict[str, Any]) -> str:
    """SHA-256 of the content."""
    return hashlib.sha256(content(data)).hexdigest()
