"""The certificate: everything that was checked and found, in plain data that anybody can check
again.

`verification` recomputes what it says from what it contains, `replay` plays its episodes again, and
`signature` tells who issued it. The hash is none: it shows damage and careless edits.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from canary.certification.plan import Plan
from canary.certification.sentences import Verdict, changed_sentence, promise
from canary.certification.verdict import Assessment, Evidence, overall
from canary.constraints import Constraint, Kind, from_dict
from canary.errors import CanaryError

FORMAT = 4
READABLE = (2, 3, 4)
"""In format 2 the episodes did not depend on the plan, so that a replay could not tell another
plan. Before format 4 every constraint was a chance constraint."""

METHODS = {
    "fixed": "Clopper-Pearson, one-sided, for a number of episodes fixed in advance",
    "anytime": "truncated beta-binomial mixture martingale (Robbins), valid at all times together",
    "value_at_risk": "order statistics with the bounds on the violation probability",
    "mean_and_conditional_value_at_risk": "integrated survival function (Anderson), Clopper-Pearson at "
    "geometrically spaced order statistics; at look j of an anytime test at level alpha / (j (j + "
    "1))",
    "cantelli_plug_in": "sample moments in Cantelli's inequality: a description, not a bound",
    "correction": "Bonferroni over all statements of the certificate",
    "hash": "SHA-256",
}
JUDGED = {
    "mean": "betting on each episode by those before it (Waudby-Smith and Ramdas), valid at all times together",
    "cvar": "as mean_and_conditional_value_at_risk; from below with costs that are never negative",
}
"""By which bounds the constraints of other kinds are judged; added to the methods of their
certificates."""


@dataclass(frozen=True, kw_only=True)
class Result:
    """One policy in one environment: the trained one, or that with some settings changed."""

    seed: int
    changes: dict[str, int | float]
    evidence: Evidence
    assessment: Assessment


@dataclass(frozen=True, kw_only=True)
class Certificate:
    environment: str
    settings: dict[str, Any]
    constraint: Kind = "chance"
    limit: float
    epsilon: float
    """The share of episodes that the constraint looks at: 1 for the mean."""
    cost_discount: float
    plan: Plan
    evaluation_seed: int
    results: tuple[Result, ...]
    """One per statement: every seed under row 0, which changes nothing and decides the verdict,
    then under the others."""
    verdict: Verdict
    sentence: str
    origin: dict[str, Any]
    """Where the policies come from: run, algorithm, updates, and how many certificates the run had
    before."""
    versions: dict[str, str]
    time: str
    methods: dict[str, str] = field(default_factory=lambda: dict(METHODS))
    format: int = FORMAT


def terms(constraint: Constraint) -> dict[str, Any]:
    """The fields of a certificate that state its constraint."""
    return {"constraint": constraint.kind, "limit": constraint.limit, "epsilon": constraint.share}


def constraint_of(data: dict[str, Any]) -> Constraint:
    """What a certificate judges."""
    kind, stated = (
        data.get("constraint", "chance"),
        {"limit": data["limit"], "epsilon": data["epsilon"]},
    )
    if kind == "mean" and stated.pop("epsilon") != 1:
        raise CanaryError(
            "A mean is that of all episodes, but the certificate names another share of them."
        )
    return from_dict({"kind": kind, **stated})


def methods_of(kind: str) -> dict[str, str]:
    """The statistics that a certificate of this kind of constraint rests on."""
    return METHODS | ({"judged": JUDGED[kind]} if kind in JUDGED else {})


def summarise(
    results: tuple[Result, ...],
    plan: Plan,
    constraint: Constraint | None = None,
    changes: Sequence[str] = (),
) -> tuple[Verdict, str]:
    """The verdict on the policies in the environment they were trained in, or in one that differs
    from it by accepted `changes`, and a sentence about all results."""
    nominal = [result for result in results if not result.changes]
    assessments, seeds = (
        [result.assessment for result in nominal],
        [result.seed for result in nominal],
    )
    place = "the environment as it is now" if changes else "the environment they were trained in"
    kept = "the limit" if constraint is None else promise(constraint)
    verdict, sentence = overall(assessments, seeds, plan, kept, place)
    shifted = [result for result in results if result.changes]
    parts = [sentence, *([_shifts(shifted)] if shifted else [])]
    return verdict, " ".join(parts + ([changed_sentence(changes)] if changes else []))


def _shifts(results: list[Result]) -> str:
    """What holds where the environment was changed; none of it decides the verdict."""
    counts = {
        phrase: sum(result.assessment.verdict == verdict for result in results)
        for verdict, phrase in (
            ("SATISFIED", "keep the limit"),
            ("VIOLATED", "break it"),
            ("UNDECIDED", "are undecided"),
        )
    }
    parts = [f"{count} {phrase}" for phrase, count in counts.items() if count]
    return f"Of {len(results)} statements about changed settings, {', '.join(parts)}."


def commitment(
    plan: dict[str, Any], terms: dict[str, Any], statements: list[tuple[dict[str, Any], int]]
) -> tuple[int, ...]:
    """Four numbers that stand for all that was decided beforehand; every episode is drawn from
    them.

    So whoever changes the plan, the constraint or the list of (changes, seed) afterwards has other
    episodes.
    """
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
