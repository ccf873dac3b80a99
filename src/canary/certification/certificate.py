"""The certificate: everything that was checked and found, in plain data that anybody can check again.

`verify` needs nothing but the certificate: it recomputes the hash of its content, all bounds from the costs
it lists, and the verdicts. With the policy's hash and the environment's settings at hand it compares those
too. A hash is not a signature: it shows damage and careless edits; that the episodes were really played is
shown by replaying them.
"""

import hashlib
import json
import math
from dataclasses import asdict, dataclass, field
from typing import Any

from canary.certification.plan import Plan
from canary.certification.verdict import Assessment, Evidence, Verdict, assess, overall
from canary.errors import CanaryError
from canary.types import Chance

FORMAT = 1
TOLERANCE = 1e-6  # relative: other versions of the numerical libraries may round differently

METHODS = {
    "fixed": "Clopper-Pearson, one-sided, for a number of episodes fixed in advance",
    "anytime": "truncated beta-binomial mixture martingale (Robbins), valid at all times together",
    "value_at_risk": "order statistics with the bounds on the violation probability",
    "mean_and_conditional_value_at_risk": "integrated survival function (Anderson), Clopper-Pearson at "
    "geometrically spaced order statistics; at look j of an anytime test at level alpha / (j (j + 1))",
    "cantelli_plug_in": "sample moments in Cantelli's inequality: a description, not a bound",
    "correction": "Bonferroni over all statements of the certificate",
    "hash": "SHA-256",
}


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
    limit: float
    epsilon: float
    cost_discount: float
    plan: Plan
    evaluation_seed: int
    results: tuple[Result, ...]
    """One per statement; those without changes decide the verdict."""
    verdict: Verdict
    sentence: str
    origin: dict[str, Any]
    """Where the policies come from: run, algorithm, iteration."""
    versions: dict[str, str]
    time: str
    methods: dict[str, str] = field(default_factory=lambda: dict(METHODS))
    format: int = FORMAT


def summarise(results: tuple[Result, ...], plan: Plan) -> tuple[Verdict, str]:
    """The verdict on the policies in the environment they were trained in."""
    nominal = [result for result in results if not result.changes]
    return overall([result.assessment for result in nominal], [result.seed for result in nominal], plan)


def to_dict(certificate: Certificate) -> dict[str, Any]:
    """Plain data with the hash of its content."""
    data = json.loads(json.dumps(asdict(certificate), allow_nan=False))
    return data | {"sha256": content_hash(data)}


def content_hash(data: dict[str, Any]) -> str:
    """SHA-256 of everything but the hash itself, as JSON with sorted keys and no spaces."""
    content = {key: value for key, value in data.items() if key != "sha256"}
    return hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def verify(
    data: dict[str, Any],
    policy_hashes: dict[int, str] | None = None,
    settings: dict[str, Any] | None = None,
) -> list[str]:
    """Everything that is wrong with a certificate, a sentence each; an empty list means it holds.

    `policy_hashes` (by seed) and `settings` are those of the policies and the environment one has at hand.
    """
    problems = []
    try:
        if data.get("format") != FORMAT:
            return [f"The certificate has the format {data.get('format')!r}; this version reads {FORMAT}."]
        if content_hash(data) != data.get("sha256"):
            problems.append(
                "The content does not match its SHA-256 hash: it was changed after it was issued."
            )
        problems += _check_statistics(data)
        if settings is not None and settings != data["settings"]:
            names = [
                name
                for name in {**settings, **data["settings"]}
                if settings.get(name) != data["settings"].get(name)
            ]
            problems.append(
                f"The environment's settings differ from the certificate's in {', '.join(sorted(names))}."
            )
        if policy_hashes is not None:
            problems += _check_policies(data, policy_hashes)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError, MemoryError) as error:
        problems.append(f"The certificate is malformed ({type(error).__name__}: {error}).")
    return problems


def _check_policies(data: dict[str, Any], policy_hashes: dict[int, str]) -> list[str]:
    problems = []
    certified = {(result["seed"], result["evidence"]["policy_sha256"]): None for result in data["results"]}
    for seed, digest in certified:
        if seed not in policy_hashes:
            problems.append(f"There is no policy of seed {seed} to compare with.")
        elif policy_hashes[seed] != digest:
            problems.append(f"The policy of seed {seed} is not the one that was certified: its hash differs.")
    return problems


def _check_statistics(data: dict[str, Any]) -> list[str]:
    """Recompute every bound and verdict from the listed costs."""
    plan = Plan(**data["plan"])
    constraint = Chance(limit=data["limit"], epsilon=data["epsilon"])
    problems, results = [], []
    if data["methods"] != METHODS:
        problems.append("The methods it names are not those that this version computes.")
    if plan.statements != len(data["results"]):
        problems.append(
            f"It makes {len(data['results'])} statements but was corrected for {plan.statements}."
        )
    for stored in data["results"]:
        fields: dict[str, Any] = dict(stored["evidence"])
        evidence = Evidence(**(fields | {"costs": tuple(map(tuple, fields["costs"]))}))
        name = f"Seed {stored['seed']}"
        if stored["changes"]:
            name += f" ({', '.join(f'{key} = {value:g}' for key, value in stored['changes'].items())})"
        problems += [f"{name}: {problem}" for problem in _check_evidence(evidence, plan)]
        try:
            again = assess(evidence, plan, constraint)
        except CanaryError as error:
            problems.append(f"{name}: {error}")
            continue
        for key, value in asdict(again).items():
            if not _same(value, stored["assessment"][key]):
                problems.append(
                    f"{name}: {key} is {stored['assessment'][key]!r} but recomputing it gives {value!r}."
                )
        results.append(
            Result(seed=stored["seed"], changes=stored["changes"], evidence=evidence, assessment=again)
        )
    if len(results) == len(data["results"]):
        verdict, sentence = summarise(tuple(results), plan)
        if (verdict, sentence) != (data["verdict"], data["sentence"]):
            problems.append(
                f"The verdict is {data['verdict']} but recomputing it gives {verdict}: {sentence}"
            )
    return problems


def _check_evidence(evidence: Evidence, plan: Plan) -> list[str]:
    """Whether the episodes are those that the plan asked for."""
    values = [value for value, _ in evidence.costs]
    counts = [count for _, count in evidence.costs]
    episodes, planned = sum(counts), plan.episodes
    problems = []
    if values != sorted(set(values)) or not all(isinstance(count, int) and count > 0 for count in counts):
        problems.append("its costs are not distinct ascending values with positive counts.")
    if planned is None or episodes > planned:
        problems.append(f"it counts {episodes:,} episodes, more than the {planned or 0:,} planned.")
    elif evidence.looks != -(-episodes // plan.batch):
        problems.append(
            f"{episodes:,} episodes in batches of {plan.batch:,} are not {evidence.looks:,} looks."
        )
    if evidence.method != ("anytime" if plan.early_stop or evidence.interrupted else "fixed"):
        problems.append("its method is not the one that the plan prescribes.")
    if evidence.method == "fixed" and episodes != planned:
        problems.append(
            f"a fixed plan of {planned or 0:,} episodes was not carried out: it counts {episodes:,}."
        )
    return problems


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, int | float):
        return math.isclose(one, other, rel_tol=TOLERANCE, abs_tol=1e-9)
    return type(one) is type(other) and one == other
