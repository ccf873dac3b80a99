"""`canary certify --verify`: issue a certificate again and compare.

consistent   from the costs that it lists
replayed     from its episodes, played again by the policies of its run
"""

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from canary.certification.certificate import FORMAT, constraint_of, content_hash, judge
from canary.certification.page import certificate_in, render_page
from canary.certification.plan import Plan, complete
from canary.certification.run import JSON_NAME, about, play
from canary.certification.verdict import Result, decode_costs
from canary.constraints import parts_of
from canary.environments.protocol import Environment
from canary.errors import CanaryError
from canary.runs import files
from canary.runs.checkpoint import stored_updates
from canary.runs.directory import versions
from canary.runs.environment import open_config
from canary.runs.policies import FrozenPolicies, load_policies
from canary.terminal.certificate_table import CertificationBar

TOLERANCE = 1e-6  # relative: other versions of the numerical libraries may round differently
MOST_PROBLEMS = 5
LABELS = "seed", "changes", "policy_sha256", "return_mean", "length_mean"  # shown by a replay
MALFORMED = LookupError, TypeError, ValueError, AttributeError, ArithmeticError, MemoryError


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
    episodes again. `key` is the public key that must have signed it. Returns whether it is `valid`,
    the `level` reached, the `problems`, and the fingerprint of the key that signed it.
    """
    certificate, page = read(path)
    problems, who, policies = [], None, None
    if key is not None or "signature" in certificate:
        from canary.certification import signature  # needs cryptography

        problems, who = signature.check(certificate, key)
    if replay:
        run = run or run_around(path)
        if run is None:
            raise CanaryError(
                "Replaying a certificate needs its run, with manifest.json and checkpoints: canary "
                "certify RUN --verify FILE --replay."
            )
        config = open_config(run, environment, accept_change=True)
        steps = {update: update * config.training.batch for update in stored_updates(run)}
        # Those that it is about, if the run still has them, else the newest
        step = steps.get(certificate["origin"].get("updates"))
        policies = load_policies(config, run, step)
    problems += verify(certificate, policies, page, quiet=quiet)
    return {
        "path": str(path),
        "valid": not problems,
        "level": "nothing" if problems else "replayed" if replay else "consistent",
        "verdict": certificate.get("verdict"),
        "sentence": certificate.get("sentence"),
        "problems": problems,
        "signed_by": who,
    }


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
        issued = _issued_again(data, policies, quiet=quiet)
        problems = list(_differences({name: data.get(name) for name in issued}, issued))
        if problems and policies is not None:
            if not data["environment_check"]["compared"]:
                return [f"Its episodes differ. {data['environment_check']['sentence']}"]
            if data["versions"] != versions():
                problems.insert(0, "Other versions made it, which may round differently.")
        return problems[:MOST_PROBLEMS]
    except CanaryError as error:
        return [str(error)]
    except MALFORMED as error:
        return [f"The certificate is malformed ({type(error).__name__}: {error!s:.200})."]


def _issued_again(
    data: dict[str, Any], policies: FrozenPolicies | None, *, quiet: bool
) -> dict[str, Any]:
    """What follows from the costs that a certificate lists or, with policies, from its episodes."""
    constraint, origin, facts = constraint_of(data), data["origin"], {}
    # A result that was taken out shows in the number of statements
    plan = complete(replace(Plan(**data["plan"]), statements=len(data["results"])), constraint)
    parts = parts_of(constraint)
    if policies is None:
        results = [
            Result(
                costs=decode_costs(one["costs"]),
                plan=plan,
                constraint=parts[index % len(parts)],
                **{name: one[name] for name in LABELS},
            )
            for index, one in enumerate(data["results"])
        ]
    else:
        facts = about(policies)
        facts["origin"] = origin | facts["origin"]
        each = data["results"][:: len(parts)]  # the first about each policy's episodes
        statements = [(one["changes"], one["seed"]) for one in each]
        counts = [one["episodes"] for one in each]
        with CertificationBar(constraint, plan, quiet=quiet) as bar:
            how = plan, data["evaluation_seed"], bar.start, counts
            results = play(policies, statements, constraint, *how)
    return judge(results, plan, constraint, origin.get("environment_changes", [])) | facts


def _differences(one: Any, other: Any, place: str = "") -> Iterator[str]:
    """Where a certificate differs from the one issued again by more than rounding."""
    if isinstance(one, list) and isinstance(other, list):
        one, other = dict(enumerate(one)), dict(enumerate(other))
    if isinstance(one, dict) and isinstance(other, dict):
        for name in other | one:
            pair = one.get(name, "missing"), other.get(name, "missing")
            yield from _differences(*pair, f"{place}.{name}")
        return
    are_close = one == other
    if isinstance(one, float) and isinstance(other, float):
        are_close = math.isclose(one, other, rel_tol=TOLERANCE, abs_tol=1e-9)
    if not are_close:
        yield f"{place[1:]} is {one!r:.60} in the certificate but should be {other!r:.60}."
