"""`canary certify --verify`: issue a certificate again, by the same plan, and compare.

    consistent   from the costs that it lists
    belongs      and its policies, environment and settings are those of the run at hand
    replayed     from its episodes, played again

The answer says in words what was shown and what was not.
"""

import json
import math
from collections.abc import Callable, Iterator
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from canary.certification import signature
from canary.certification.certificate import (
    FORMAT,
    Certificate,
    constraint_of,
    content_hash,
    result_name,
    results_of,
    summarise,
    terms,
)
from canary.certification.certify import gather, shift_grid
from canary.certification.page import certificate_in, render_page
from canary.certification.plan import Plan, complete
from canary.certification.run import JSON_NAME, about, play_statements
from canary.certification.verdict import decode_costs
from canary.constraints import parts_of
from canary.environments.protocol import Environment
from canary.errors import CanaryError
from canary.runs import files
from canary.runs.checkpoint import stored_updates
from canary.runs.directory import versions
from canary.runs.environment import open_config
from canary.runs.policies import FrozenPolicies, load_policies

TOLERANCE = 1e-6  # relative: other versions of the numerical libraries may round differently
SAID = ("verdict", "sentence", "environment", "constraint", "limit", "epsilon", "time")

Report = Callable[[int, int], None]


def verify_file(
    path: Path,
    *,
    run: Path | None = None,
    environment: Environment | None = None,
    replay: bool = False,
    key: Any = None,
    report: Report = lambda seed, episodes: None,
) -> dict[str, Any]:
    """Check a certificate: its JSON, its page, or a directory with both.

    The run is the given one, or that in whose directory the certificate lies. `replay` plays all
    episodes again and calls `report(seed, episodes)` after each batch. `key` is the public key that
    must have signed it.
    """
    certificate, problems = read(path)
    unsigned, who = signature.check(certificate, key)
    problems += verify(certificate) + unsigned
    run = run or run_around(path)
    if run is None and replay:
        raise CanaryError(
            "Replaying a certificate needs its run, with config.json, manifest.json and "
            "checkpoints: canary certify RUN --verify FILE --replay."
        )
    level, shown, notes = "nothing", [], []
    if who is not None:
        shown.append(f"The holder of the key {who} signed exactly this text.")
    if not problems:
        level = "consistent"
        shown.append("Its bounds, verdict and sentence follow from the costs that it lists.")
    if run is not None and not problems:
        policies = _policies(run, environment, certificate["origin"]["updates"])
        notes, problems = _notes(certificate, policies), _compare(certificate, policies)
        if not problems:
            level = "belongs"
            shown.append(f"Its policies, environment and settings are those of {run.name}.")
            problems = _replay(certificate, policies, report) if replay else []
        if replay and not problems:
            level = "replayed"
            shown.append("All its episodes, played again, had the same costs.")
    return {
        "path": str(path),
        "valid": not problems,
        "level": level,
        "problems": problems,
        "shown": shown,
        "notes": notes,
        "not_shown": _not_shown(certificate, level, who, key),
        "signed_by": who,
        **{name: certificate.get(name) for name in SAID},
    }


def read(path: Path) -> tuple[dict[str, Any], list[str]]:
    """The certificate in a JSON file, a page or a directory, and what is wrong with the page."""
    path = path / JSON_NAME if path.is_dir() else path
    try:
        data = files.read_bytes(path)
    except (OSError, ValueError) as error:
        raise CanaryError(f"There is no certificate {path} ({files.reason_of(error)}).") from None
    is_page = data.lstrip()[:1] == b"<"
    try:
        certificate = files.parse_object(certificate_in(data) if is_page else data)
    except (ValueError, RecursionError) as error:
        raise CanaryError(f"{path} is no certificate, or damaged ({error!s:.200}).") from None
    if certificate.get("format") != FORMAT:
        raise CanaryError(
            f"{path} was not checked: it has format {certificate.get('format')!r:.40}, and this "
            f"version reads {FORMAT}. Certify the policy again: canary certify RUN."
        )
    try:
        is_true = not is_page or render_page(certificate).encode() == data
    except Exception:  # a malformed certificate, which `verify` describes
        is_true = False
    return certificate, [] if is_true else ["The page differs from the certificate in it."]


def run_around(path: Path) -> Path | None:
    """The run in whose directory a certificate lies, if it has all that a replay needs."""
    folder = path if path.is_dir() else path.parent
    names = ("config.json", "manifest.json")
    is_run = all((folder / name).is_file() for name in names) and stored_updates(folder)
    return folder if is_run else None


def verify(data: dict[str, Any]) -> list[str]:
    """Everything that is wrong with a certificate in itself, a sentence each."""
    try:
        odd = {field.name for field in fields(Certificate)} ^ (set(data) - {"sha256", "signature"})
        if odd:
            return [f"It has a field {name!r} too many or too few." for name in sorted(odd)]
        if content_hash(data) != data.get("sha256"):
            return ["The content does not match its SHA-256 hash: it was changed or damaged."]
        return [
            f"{place} is {found!r:.60}, but its costs give {value!r:.60}."
            for place, found, value in _differences(data, _from_costs(data))
        ]
    except CanaryError as error:
        return [str(error)]
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, MemoryError) as e:
        return [f"The certificate is malformed ({type(e).__name__}: {e!s:.200})."]


def _from_costs(data: dict[str, Any]) -> dict[str, Any]:
    """Plan, results, verdict and sentence, from the listed costs."""
    constraint, results = constraint_of(data), []
    promises = len(parts_of(constraint))
    plan = complete(replace(Plan(**data["plan"]), statements=len(data["results"])), constraint)
    for first in range(0, len(data["results"]), promises):
        policy = data["results"][first : first + promises]
        costs = [decode_costs(one["evidence"]["costs"]) for one in policy]
        stored, evidence = policy[0], policy[0]["evidence"]
        means = [evidence[name] or 0.0 for name in ("return_mean", "length_mean")]
        rows = np.column_stack([*costs, np.tile(means, (len(costs[0]), 1))])
        found = gather(
            lambda numbers, rows=rows: rows[numbers[0] : numbers[-1] + 1],
            plan,
            constraint,
            evidence["policy_sha256"],
            interrupt_at=len(rows),
        )
        results += results_of(stored["seed"], stored["changes"], found)
    changes = data["origin"].get("environment_changes", ())
    verdict, sentence = summarise(results, plan, constraint, changes)
    issued = {"plan": asdict(plan), "results": [asdict(result) for result in results]}
    issued |= {"verdict": verdict, "sentence": sentence, **terms(constraint)}
    return json.loads(json.dumps(issued, allow_nan=False))


def _replay(certificate: dict[str, Any], policies: FrozenPolicies, report: Report) -> list[str]:
    """What differs when the episodes are played again."""
    again, problems = _play_again(certificate, policies, report), []
    for stored, result in zip(certificate["results"], again, strict=True):
        if different := [place for place, _, _ in _differences(stored, result)]:
            listed, found = (decode_costs(one["evidence"]["costs"]) for one in (stored, result))
            common = min(len(listed), len(found))
            other = int((listed[:common] != found[:common]).sum())
            what = f"{other:,} of {common:,} episodes had other costs" if other else different[0]
            problems.append(f"{result_name(stored)}, played again, differs: {what}.")
    if problems and again != _play_again(certificate, policies, report):
        return ["It could not be compared: the environment has randomness of its own."]
    if problems and certificate["versions"] != versions():
        problems.append("It was made with other versions, which may round differently.")
    return problems


def _play_again(
    certificate: dict[str, Any], policies: FrozenPolicies, report: Report
) -> list[dict[str, Any]]:
    """The results of the same plan with the same keys, ended where it was ended."""
    results, plan = certificate["results"], Plan(**certificate["plan"])
    promises = len(parts_of(constraint_of(certificate)))
    seeds = [result["seed"] for result in results[::promises] if not result["changes"]]
    environment = policies.config.environment
    rows = [({}, environment)]
    each = len(seeds) * promises
    for result in results[each::each]:
        rows += shift_grid(environment, {name: [v] for name, v in result["changes"].items()})
    played = play_statements(
        policies,
        seeds,
        rows,
        constraint_of(certificate),
        plan,
        certificate["evaluation_seed"],
        lambda seed, changes: lambda episodes, violations: report(seed, plan.batch),
        [result["assessment"]["episodes"] for result in results],
    )
    return json.loads(json.dumps([asdict(result) for result in played]))


def _differences(found: Any, expected: Any, place: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Where JSON data differs by more than rounding; at the top only the expected names count."""
    if isinstance(expected, dict) and isinstance(found, dict):
        if place and set(found) != set(expected):
            yield place, sorted(found), sorted(expected)
        for name in sorted(expected.keys() & found.keys()):
            yield from _differences(found[name], expected[name], f"{place}.{name}".lstrip("."))
    elif isinstance(expected, list) and isinstance(found, list) and len(found) == len(expected):
        for index, (one, other) in enumerate(zip(found, expected, strict=True)):
            yield from _differences(one, other, f"{place}[{index}]")
    elif isinstance(expected, float) and type(found) in (int, float):
        if not math.isclose(found, expected, rel_tol=TOLERANCE, abs_tol=1e-9):
            yield place, found, expected
    elif type(found) is not type(expected) or found != expected:
        yield place, found, expected


def _policies(run: Path, environment: Environment | None, updates: Any) -> FrozenPolicies:
    """Those that a certificate is about if the run still has them, else the newest."""
    config = open_config(run, environment, accept_change=True)
    has_it = type(updates) is int and updates in stored_updates(run)
    return load_policies(config, run, updates * config.training.batch if has_it else None)


def _compare(certificate: dict[str, Any], policies: FrozenPolicies) -> list[str]:
    """How a certificate differs from a run."""
    origin = {"algorithm": policies.config.algorithm_name, "updates": policies.iteration}
    here = about(policies) | {"origin": certificate["origin"] | origin}
    problems = [
        f"{place} is {found!r:.60} in the certificate and {value!r:.60} in the run."
        for place, found, value in _differences(certificate, here)
    ]
    for result in certificate["results"]:
        seed, digest = result["seed"], result["evidence"]["policy_sha256"]
        if seed not in policies.config.training.seeds:
            problems.append(f"The run has no seed {seed}.")
        elif policies.identity(seed).sha256 != digest:
            problems.append(f"The policy of seed {seed} is not the certified one.")
    return list(dict.fromkeys(problems))


def _notes(certificate: dict[str, Any], policies: FrozenPolicies) -> list[str]:
    """What is no fault of a certificate but matters to those who rely on it."""
    notes, trained = list(policies.notes), policies.config.constraint
    if (constraint := constraint_of(certificate)) != trained:
        notes.append(f"It is about {constraint.text}; the run was trained for {trained.text}.")
    certified = {result["seed"] for result in certificate["results"]}
    if left := sorted(set(policies.config.training.seeds) - certified):
        notes.append(f"It says nothing about the run's seeds {', '.join(map(str, left))}.")
    if not certificate["environment_check"]["compared"]:
        notes.append(f"The environment: {certificate['environment_check']['sentence']}")
    return notes


def _not_shown(certificate: dict[str, Any], level: str, who: str | None, key: Any) -> list[str]:
    """What was not shown, or cannot be."""
    plan = certificate.get("plan")
    bound = plan.get("cost_bound") if isinstance(plan, dict) else None
    missing = {
        "Whether it is about your policy: canary certify RUN --verify FILE.": level
        in ("nothing", "consistent"),
        "Whether these episodes were ever played: --replay plays them again.": level != "replayed",
        "Whether it was the first try: who certifies often enough finds a lucky seed.": True,
        "An environment that behaves differently when it is watched.": True,
        f"That no episode can cost more than {bound}: the bounds on mean and CVaR use it.": bound,
        "Who issued it, when, and with which versions: --sign and --key show that.": who is None,
        "Whose key that is: --key PUB compares it with one that you trust.": who and key is None,
    }
    return [sentence for sentence, is_open in missing.items() if is_open]
