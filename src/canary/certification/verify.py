"""`canary certify --verify`: issue a certificate again and compare.

consistent   from the costs that it lists
replayed     from its episodes, played again by the policies of its run
"""

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from canary.certification.certificate import FORMAT, constraint_of, content_hash, judge
from canary.certification.certify import Table, examine, gather
from canary.certification.page import certificate_in, render_page
from canary.certification.plan import Plan, complete
from canary.certification.run import JSON_NAME, about, players
from canary.certification.verdict import decode_costs
from canary.constraints import parts_of
from canary.environments.protocol import Environment
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
    "replayed": "All its episodes, played again, had the same costs.",
}
NOT_SHOWN = (
    "Whether it was the first try: who certifies often enough finds a lucky seed.",
    "That no episode can cost more than the stated bound.",
    "An environment that behaves differently when it is watched.",
)


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
    certificate, page = read(path)
    problems, who, policies = [], None, None
    if key is not None or "signature" in certificate:
        from canary.certification import signature  # needs cryptography

        problems, who = signature.check(certificate, key)
    if replay:
        policies = _policies(run or run_around(path), environment, certificate)
    problems += verify(certificate, policies, page, quiet=quiet)
    reached = 0 if problems else 2 if replay else 1
    shown, not_shown = list(SHOWN.values())[:reached], list(NOT_SHOWN)
    if who is not None:
        shown.append(f"The holder of the key {who} signed exactly this text.")
    if reached < 2:
        not_shown.append(
            "Whether these episodes were played: canary certify RUN --verify FILE --replay."
        )
    if who is None or key is None:
        not_shown.append("Who issued it, and when: --sign and --key show that.")
    return {
        "path": str(path),
        "valid": not problems,
        "level": ("nothing", *SHOWN)[reached],
        "problems": problems,
        "shown": shown,
        "notes": policies.notes if policies else [],
        "not_shown": not_shown,
        "signed_by": who,
        **{name: certificate.get(name) for name in SAID},
    }


def _policies(
    run: Path | None, environment: Environment | None, certificate: dict[str, Any]
) -> FrozenPolicies:
    """Those that the certificate is about, if the run still has them, else the newest."""
    if run is None:
        raise CanaryError(
            "Replaying a certificate needs its run, with manifest.json and "
            "checkpoints: canary certify RUN --verify FILE --replay."
        )
    config = open_config(run, environment, accept_change=True)
    steps = {update: update * config.training.batch for update in stored_updates(run)}
    return load_policies(config, run, steps.get(certificate["origin"].get("updates")))


def read(path: Path) -> tuple[dict[str, Any], bytes | None]:
    """The certificate in a JSON file, a page or a directory, and the page if it is one."""
    path = path / JSON_NAME if path.is_dir() else path
    try:
        data = files.read_bytes(path)
        page = data if data.lstrip()[:1] == b"<" else None
        certificate = files.parse_object(certificate_in(page) if page else data)
        if certificate.get("format") != FORMAT or not isinstance(certificate.get("origin"), dict):
            found = certificate.get("format")
            raise ValueError(f"its format is {found!r:.40}, and this version reads {FORMAT}")
    except (OSError, ValueError, RecursionError) as error:
        reason = files.reason_of(error)
        raise CanaryError(f"{path} is no certificate that can be read ({reason:.200}).") from None
    return certificate, page


def run_around(path: Path) -> Path | None:
    """The run in whose directory a certificate lies, if it has all that a replay needs."""
    folder = path if path.is_dir() else path.parent
    is_run = (folder / "manifest.json").is_file() and stored_updates(folder)
    return folder if is_run else None


def verify(
    data: dict[str, Any],
    policies: FrozenPolicies | None = None,
    page: bytes | None = None,
    *,
    quiet: bool = True,
) -> list[str]:
    """What is wrong with a certificate and its page, a sentence each. With policies their episodes
    are played again."""
    try:
        if content_hash(data) != data.get("sha256"):
            return ["The content does not match its SHA-256 hash: it was changed or damaged."]
        if page is not None and render_page(data).encode() != page:
            return ["The page differs from the certificate in it."]
        problems = _differences(data, _issued_again(data, policies, quiet=quiet))
        if problems and policies is not None:
            if not data["environment_check"]["compared"]:
                return [f"Its episodes differ. {data['environment_check']['sentence']}"]
            if data["versions"] != versions():
                problems.append("It was made with other versions, which may round differently.")
        return problems
    except CanaryError as error:
        return [str(error)]
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, MemoryError) as e:
        return [f"The certificate is malformed ({type(e).__name__}: {e!s:.200})."]


def _issued_again(
    data: dict[str, Any], policies: FrozenPolicies | None, *, quiet: bool
) -> dict[str, Any]:
    """What follows from the costs that a certificate lists or, with policies, from its episodes."""
    constraint, results, origin = constraint_of(data), data["results"], data["origin"]
    # A result that was taken out shows in the number of statements
    plan = complete(replace(Plan(**data["plan"]), statements=len(results)), constraint)
    count, facts = len(parts_of(constraint)), {}
    each = [results[first : first + count] for first in range(0, len(results), count)]
    statements = [(one[0]["changes"], one[0]["seed"]) for one in each]
    if policies is None:
        played = [(_listed(one), one[0]["evidence"]["policy_sha256"]) for one in each]
    else:
        facts = about(policies)
        facts["origin"] = origin | facts["origin"]
        counts, played = [one[0]["assessment"]["episodes"] for one in each], []
        again = players(policies, statements, constraint, plan, data["evaluation_seed"])
        with evaluation_bar(sum(counts), quiet=quiet) as (report, _):
            for (_, seed), episodes, play in zip(statements, counts, again, strict=True):
                table = gather(play, plan, constraint, count=episodes)
                played.append((table, policies.identity(seed).sha256))
                report(seed, episodes)
    found = [
        (seed, changes, examine(table, policy, plan, constraint))
        for (changes, seed), (table, policy) in zip(statements, played, strict=True)
    ]
    return judge(found, plan, constraint, origin.get("environment_changes", [])) | facts


def _listed(results: list[dict[str, Any]]) -> Table:
    """The episodes of a policy by the results about its costs. Of their returns and lengths only
    the means are listed."""
    costs = [decode_costs(one["evidence"]["costs"]) for one in results]
    means = [results[0]["evidence"][name] for name in ("return_mean", "length_mean")]
    return np.column_stack([*costs, *(np.full(len(costs[0]), mean) for mean in means)])


def _differences(data: dict[str, Any], issued: dict[str, Any]) -> list[str]:
    """Where the certificate differs from the one issued again by more than rounding."""
    found = dict(_leaves({name: data.get(name) for name in issued}))
    expected, problems = dict(_leaves(issued)), []
    for place in expected | found:
        one, other = found.get(place, "missing"), expected.get(place, "missing")
        are_close = one == other
        if isinstance(one, float) and isinstance(other, float):
            are_close = math.isclose(one, other, rel_tol=TOLERANCE, abs_tol=1e-9)
        if not are_close:
            text = f"{place[1:]} is {one!r:.60} in the certificate but should be {other!r:.60}."
            problems.append(text)
    return problems[:MOST_PROBLEMS]


def _leaves(data: Any, place: str = "") -> Iterator[tuple[str, Any]]:
    """The numbers and texts of JSON data by their places."""
    if isinstance(data, dict | list):
        for name, value in data.items() if isinstance(data, dict) else enumerate(data):
            yield from _leaves(value, f"{place}.{name}")
    else:
        yield place, data
