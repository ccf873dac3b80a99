"""The certificate: everything that was played and found, as plain data that anybody can check.

    environment, settings, cost_discount     what was played
    constraint, limit, epsilon               what was judged; lists if there are several costs, and
                                             epsilon is 1 for a mean
    plan, evaluation_seed                    how; together with the constraint and the statements they
                                             determine every episode
    results                                  a table per statement and cost (`verdict.Result`)
    verdict, sentence                        about the unchanged environment
    environment_check                        whether it could be compared with that of training, and how
    origin, versions, time, format, sha256   labels, and the hash of all the rest
    signature                                of all but the hash, if it was signed

The hash is no signature: it shows damage and careless edits.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from canary.certification.plan import Plan
from canary.certification.verdict import Changes, Result, Verdict, statement_start
from canary.constraints import Chance, Constraint, Joint, One, from_dict

FORMAT = 7
VERDICTS: tuple[Verdict, ...] = ("VIOLATED", "UNDECIDED", "SATISFIED")  # the worst first


def judge(
    results: Sequence[Result], plan: Plan, constraint: Constraint, accepted: Sequence[str] = ()
) -> dict[str, Any]:
    """The part of a certificate that follows from the episodes. `accepted` are differences from the
    environment of training."""
    verdict, sentence = summarise(results, plan, constraint, accepted)
    data = {"verdict": verdict, "sentence": sentence, **terms(constraint), "plan": asdict(plan)}
    each = [result.to_dict() for result in results]
    return json.loads(json.dumps(data | {"results": each}, allow_nan=False))


def summarise(
    results: Sequence[Result], plan: Plan, constraint: Constraint, accepted: Sequence[str] = ()
) -> tuple[Verdict, str]:
    """The verdict in the unchanged environment (SATISFIED if all policies are, VIOLATED if any is),
    and a sentence about all results."""
    nominal = [result for result in results if not result.changes]
    shifted = [result.verdict for result in results if result.changes]
    seeds: dict[Verdict, list[str]] = {}  # by the worst verdict of each
    for seed in dict.fromkeys(result.seed for result in nominal):
        own = [result.verdict for result in nominal if result.seed == seed]
        seeds.setdefault(min(own, key=VERDICTS.index), []).append(str(seed))
    verdict, count = min(seeds, key=VERDICTS.index), sum(map(len, seeds.values()))
    if count == 1:
        sentence = " ".join(result.sentence for result in nominal)
    else:
        promise = "the limit" if isinstance(constraint, Chance) else constraint.text
        place = "environment as it is now" if accepted else "environment they were trained in"
        where = f" in the {place}" if plan.statements > count else ""
        said = f"the policies of all {count} seeds stay within {promise}"
        if verdict != "SATISFIED":
            order = sorted(seeds, key=VERDICTS.index)
            said = "; ".join(f"seeds {', '.join(seeds[one])}: {one}" for one in order)
        sentence = f"{statement_start(plan)}, {said}{where}."
    if shifted:
        counts = ", ".join(f"{shifted.count(v)} {v}" for v in VERDICTS if v in shifted)
        sentence += f" Of {len(shifted)} statements about changed settings: {counts}."
    return verdict, f"{sentence} {changed_sentence(accepted)}" if accepted else sentence


def changed_sentence(changes: Sequence[str]) -> str:
    """That a changed environment was accepted, and how it differs from that of training."""
    return f"This is not the environment of training: {'; '.join(changes)}."


def terms(constraint: Constraint) -> dict[str, Any]:
    """The fields of a certificate that state its constraint."""
    if isinstance(constraint, Joint):
        each = [terms(part) for part in constraint.parts]
        return {name: [one[name] for one in each] for name in each[0]}
    return {"constraint": constraint.kind, "limit": constraint.limit, "epsilon": constraint.share}


def constraint_of(data: dict[str, Any]) -> Constraint:
    """The constraint that a certificate is about."""
    columns = [data[name] for name in ("constraint", "limit", "epsilon")]
    is_joint = isinstance(columns[0], list)
    parts = [
        {"kind": kind, "limit": limit} | ({} if kind == "mean" else {"epsilon": epsilon})
        for kind, limit, epsilon in (zip(*columns, strict=True) if is_joint else [columns])
    ]
    return from_dict(parts if is_joint else parts[0])


def results_about(data: dict[str, Any], constraint: One) -> list[dict[str, Any]]:
    """The results of a certificate that are about one of its constraints."""
    return [result for result in data["results"] if result["promise"] == constraint.number]


def policy_name(seed: int, changes: Changes) -> str:
    return ", ".join([f"seed {seed}", *(f"{name} = {value:g}" for name, value in changes.items())])


def commitment(
    plan: Plan, constraint: Constraint, statements: Sequence[tuple[Changes, int]]
) -> tuple[int, ...]:
    """Four numbers that stand for everything decided before the first episode: plan, constraint
    and the (changes, seed) of each statement. All episodes are drawn from them, so another plan has
    other episodes."""
    decided = {"plan": asdict(plan), **terms(constraint), "statements": statements}
    digest = hashlib.sha256(_canonical(decided)).digest()
    return tuple(int.from_bytes(digest[place : place + 4], "big") for place in range(0, 16, 4))


def content(data: dict[str, Any]) -> bytes:
    """What is hashed and signed: everything but the hash and the signature."""
    return _canonical({k: v for k, v in data.items() if k not in ("sha256", "signature")})


def content_hash(data: dict[str, Any]) -> str:
    return hashlib.sha256(content(data)).hexdigest()


def _canonical(data: dict[str, Any]) -> bytes:
    return json.dumps(data, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()
