"""`canary certify --verify`: issue a certificate again and compare.

consistent   from the costs that it lists
replayed     from its episodes, played again by the policies of its run
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from canary.certification.certificate import FORMAT, constraint_of, content_hash, judge
from canary.certification.page import certificate_in, render_page
from canary.certification.plan import Plan, complete
from canary.certification.run import JSON_NAME, about, play_statements
from canary.certification.verdict import PlayedEpisodes, assess
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
    problems, who, policies, notes = [], None, None, []
    if key is not None or "signature" in certificate:
        from canary.certification import signature  # needs cryptography

        problems, who = signature.check(certificate, key)
    if replay:
        policies = _policies(run or run_around(path), environment, certificate)
        notes = policies.notes
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
        "notes": notes,
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
        if policies is None:
            return _differences(data, _recomputed(data))
        episodes = sum(one["assessment"]["episodes"] for one in data["results"])
        with evaluation_bar(episodes, quiet=quiet) as (report, _):
            issued = _replayed(data, policies, report)
            problems = _differences(data, issued)
            if problems and issued != _replayed(data, policies, report):
                return ["It could not be compared: the environment has randomness of its own."]
        if problems and data["versions"] != versions():
            problems.append("It was made with other versions, which may round differently.")
        return problems
    except CanaryError as error:
        return [str(error)]
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, MemoryError) as e:
        return [f"The certificate is malformed ({type(e).__name__}: {e!s:.200})."]


def _terms(data: dict[str, Any]) -> tuple[Plan, Constraint, list[str]]:
    """Plan, constraint, and accepted changes of the environment. A result that was taken out shows
    in the number of statements."""
    constraint = constraint_of(data)
    plan = replace(Plan(**data["plan"]), statements=len(data["results"]))
    return complete(plan, constraint), constraint, data["origin"].get("environment_changes", [])


def _recomputed(data: dict[str, Any]) -> dict[str, Any]:
    """The certificate, issued again from the costs that it lists."""
    plan, constraint, accepted = _terms(data)
    parts, results, found = parts_of(constraint), data["results"], []
    for first in range(0, len(results), len(parts)):
        played = [PlayedEpisodes(**one["evidence"]) for one in results[first : first + len(parts)]]
        pairs = zip(played, parts, strict=True)
        each = [(one, assess(one, plan, part)) for one, part in pairs]
        found.append((results[first]["seed"], results[first]["changes"], each))
    return judge(found, plan, constraint, accepted)


def _replayed(
    data: dict[str, Any], policies: FrozenPolicies, report: Callable[[int, int], None]
) -> dict[str, Any]:
    """The certificate, issued again from its episodes: the same keys, ended where they ended."""
    plan, constraint, accepted = _terms(data)
    played = data["results"][:: len(parts_of(constraint))]
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
    facts = about(policies)
    origin = {"origin": data["origin"] | facts["origin"]}
    return judge(found, plan, constraint, accepted) | facts | origin


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
