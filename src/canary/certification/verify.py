"""`canary certify --verify`: issue a certificate again, by the same plan, and compare.

consistent   from the costs that it lists
belongs      and its policies, environment and settings are those of the run at hand
replayed     from its episodes, played again
"""

import contextlib
import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from canary.certification.certificate import FORMAT, Found, constraint_of, content_hash, judge
from canary.certification.certify import gather
from canary.certification.page import certificate_in, render_page
from canary.certification.plan import Plan, complete
from canary.certification.run import JSON_NAME, about, play_statements
from canary.certification.verdict import decode_costs
from canary.constraints import Constraint, parts_of
from canary.environments.protocol import Environment, with_settings
from canary.errors import CanaryError
from canary.runs import files
from canary.runs.checkpoint import stored_updates
from canary.runs.directory import versions
from canary.runs.environment import open_config
from canary.runs.policies import FrozenPolicies, load_policies
from canary.terminal.console import evaluation_bar

TOLERANCE = 1e-6  # relative: other versions of the numerical libraries may round differently
MOST_PROBLEMS = 5
SAID = ("verdict", "sentence", "environment", "constraint", "limit", "epsilon", "time")
SHOWN = {
    "consistent": "Its bounds, verdict and sentence follow from the costs that it lists.",
    "belongs": "Its policies, environment and settings are those of the run.",
    "replayed": "All its episodes, played again, had the same costs.",
}


def verify_file(
    path: Path,
    *,
    run: Path | None = None,
    environment: Environment | None = None,
    replay: bool = False,
    key: Any = None,
    quiet: bool = True,
) -> dict[str, Any]:
    """Check a certificate: its JSON, its page, or a directory with both.

    The run is the given one, or that in whose directory the certificate lies. `replay` plays all
    episodes again. `key` is the public key that must have signed it.
    """
    certificate, problems = read(path)
    unsigned, who = [], None
    if key is not None or "signature" in certificate:
        from canary.certification import signature  # needs cryptography

        unsigned, who = signature.check(certificate, key)
    run = run or run_around(path)
    if run is None and replay:
        raise CanaryError(
            "Replaying a certificate needs its run, with config.json, manifest.json and "
            "checkpoints: canary certify RUN --verify FILE --replay."
        )
    policies = None if run is None else _policies(run, environment, certificate)
    problems += unsigned + verify(certificate, policies, replay=replay, quiet=quiet)
    reached = 0 if problems else 1 if run is None else 3 if replay else 2
    shown = [] if who is None else [f"The holder of the key {who} signed exactly this text."]
    return {
        "path": str(path),
        "valid": not problems,
        "level": ("nothing", *SHOWN)[reached],
        "problems": problems,
        "shown": shown + list(SHOWN.values())[:reached],
        "notes": [] if problems or policies is None else _notes(certificate, policies),
        "not_shown": _not_shown(reached, who, key),
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
    if certificate.get("format") != FORMAT or not isinstance(certificate.get("origin"), dict):
        raise CanaryError(
            f"{path} was not checked: it has format {certificate.get('format')!r:.40}, and this "
            f"version reads {FORMAT}. Certify the policy again: canary certify RUN."
        )
    is_true = not is_page
    with contextlib.suppress(Exception):  # a malformed certificate, which `verify` describes
        is_true = is_true or render_page(certificate).encode() == data
    return certificate, [] if is_true else ["The page differs from the certificate in it."]


def run_around(path: Path) -> Path | None:
    """The run in whose directory a certificate lies, if it has all that a replay needs."""
    folder = path if path.is_dir() else path.parent
    names = ("config.json", "manifest.json")
    is_run = all((folder / name).is_file() for name in names) and stored_updates(folder)
    return folder if is_run else None


def verify(
    data: dict[str, Any],
    policies: FrozenPolicies | None = None,
    *,
    replay: bool = False,
    quiet: bool = True,
) -> list[str]:
    """What is wrong with a certificate, a sentence each: in itself, about the policies of a run if
    they are given, and about its episodes if they are to be replayed."""
    try:
        if content_hash(data) != data.get("sha256"):
            return ["The content does not match its SHA-256 hash: it was changed or damaged."]
        is_played = replay and policies is not None
        episodes = sum(one["assessment"]["episodes"] for one in data["results"])
        with evaluation_bar(episodes, quiet=quiet or not is_played) as (bar, _):
            report = bar if is_played else None
            issued = _issued(data, policies, report)
            problems = [
                f"{place} is {found!r:.60} in the certificate but should be {value!r:.60}."
                for place, found, value in islice(_differences(data, issued), MOST_PROBLEMS)
            ]
            if problems and is_played and issued != _issued(data, policies, report):
                return ["It could not be compared: the environment has randomness of its own."]
        if problems and is_played and data["versions"] != versions():
            problems.append("It was made with other versions, which may round differently.")
        return problems
    except CanaryError as error:
        return [str(error)]
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, MemoryError) as e:
        return [f"The certificate is malformed ({type(e).__name__}: {e!s:.200})."]


def _issued(
    data: dict[str, Any],
    policies: FrozenPolicies | None,
    report: Callable[[int, int], None] | None = None,
) -> dict[str, Any]:
    """The certificate, issued again from its listed costs or, if there is a `report` to call after
    each batch, from its episodes; about the run of the policies, if it is known."""
    constraint = constraint_of(data)
    plan = complete(replace(Plan(**data["plan"]), statements=len(data["results"])), constraint)
    played = data["results"][:: len(parts_of(constraint))]
    if report is None or policies is None:
        found = _listed(data, played, plan, constraint, policies)
    else:  # the same keys, ended where they ended
        environment = policies.config.environment
        seeds = [result["seed"] for result in played if not result["changes"]]
        shifts = [result["changes"] for result in played[len(seeds) :: len(seeds)]]
        rows = [({}, environment), *((each, with_settings(environment, each)) for each in shifts)]
        found = play_statements(
            policies,
            seeds,
            rows,
            constraint,
            plan,
            data["evaluation_seed"],
            lambda seed, changes: lambda episodes, violations: report(seed, plan.batch),
            [result["assessment"]["episodes"] for result in played],
        )
    issued = judge(found, plan, constraint, data["origin"].get("environment_changes", ()))
    if policies is None:
        return issued
    facts = about(policies)
    return issued | facts | {"origin": data["origin"] | facts["origin"]}


def _listed(
    data: dict[str, Any],
    played: list[dict[str, Any]],
    plan: Plan,
    constraint: Constraint,
    policies: FrozenPolicies | None,
) -> Iterator[Found]:
    """What the listed costs show, as if they were played."""
    each = len(parts_of(constraint))
    for index, first in enumerate(played):
        seed, evidence = first["seed"], first["evidence"]
        stored = data["results"][index * each : (index + 1) * each]
        costs = [decode_costs(one["evidence"]["costs"]) for one in stored]
        means = [evidence[name] or 0.0 for name in ("return_mean", "length_mean")]
        rows = np.column_stack([*costs, np.tile(means, (len(costs[0]), 1))])
        known = evidence["policy_sha256"] if policies is None else policies.identity(seed).sha256
        play = lambda numbers, rows=rows: rows[numbers[0] : numbers[-1] + 1]  # noqa: E731
        found = gather(play, plan, constraint, known, interrupt_at=len(rows))
        yield seed, first["changes"], found


def _differences(found: Any, expected: Any, place: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Where JSON data differs by more than rounding; at the top only the expected names count."""
    if isinstance(expected, dict) and isinstance(found, dict):
        if place and found.keys() != expected.keys():
            yield place, sorted(found), sorted(expected)
        for name, value in expected.items():
            yield from _differences(found.get(name), value, f"{place}.{name}".lstrip("."))
    elif isinstance(expected, list) and isinstance(found, list) and len(found) == len(expected):
        for index, (one, other) in enumerate(zip(found, expected, strict=True)):
            yield from _differences(one, other, f"{place}[{index}]")
    elif isinstance(expected, float) and type(found) in (int, float):
        if not math.isclose(found, expected, rel_tol=TOLERANCE, abs_tol=1e-9):
            yield place, found, expected
    elif type(found) is not type(expected) or found != expected:
        yield place, found, expected


def _policies(
    run: Path, environment: Environment | None, certificate: dict[str, Any]
) -> FrozenPolicies:
    """Those that a certificate is about if the run still has them, else the newest."""
    config = open_config(run, environment, accept_change=True)
    steps = {update: update * config.training.batch for update in stored_updates(run)}
    return load_policies(config, run, steps.get(certificate["origin"].get("updates")))


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


def _not_shown(reached: int, who: str | None, key: Any) -> list[str]:
    """What was not shown, or cannot be."""
    missing = {
        "Whether it is about your policy: canary certify RUN --verify FILE.": reached < 2,
        "Whether these episodes were ever played: --replay plays them again.": reached < 3,
        "Whether it was the first try: who certifies often enough finds a lucky seed.": True,
        "That no episode can cost more than the stated bound.": True,
        "An environment that behaves differently when it is watched.": True,
        "Who issued it, and when: --sign and --key show that.": who is None or key is None,
    }
    return [sentence for sentence, is_open in missing.items() if is_open]
