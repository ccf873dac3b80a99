"""`canary certify --verify`: issue a certificate again, and compare.

Without its run, it is issued from the costs that it lists: its bounds and verdict must follow from
them. With its run, its episodes are played again: their costs must be the same.
"""

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from canary.certification.certificate import FORMAT, Result, constraint_of, decode_costs, judge
from canary.certification.plan import Plan, complete
from canary.certification.run import JSON_NAME, issue
from canary.constraints import parts_of
from canary.environments.protocol import Environment
from canary.errors import CanaryError
from canary.runs import files
from canary.runs.checkpoint import stored_updates
from canary.runs.directory import versions
from canary.runs.environment import open_config
from canary.runs.policies import FrozenPolicies, load_policies

TOLERANCE = 1e-6  # relative: other versions of numerical libraries may round differently
MOST_PROBLEMS = 5
LABELS = "seed", "changes", "policy_sha256", "return_mean", "length_mean"  # shown by a replay
MALFORMED = LookupError, TypeError, ValueError, AttributeError, ArithmeticError, MemoryError


def verify_file(
    path: Path,
    *,
    run: Path | None = None,
    environment: Environment | None = None,
    key: Any = None,
    quiet: bool = True,
) -> dict[str, Any]:
    """Check the certificate in a file or a directory.

    With its `run` all episodes are played again. `key` is the public key that must have signed it.
    Returns whether it is `valid`, the `level` reached ("consistent" with its costs, "replayed" or
    "nothing"), the `problems` as sentences, and the fingerprint of the key that signed it.
    """
    certificate = read(path / JSON_NAME if path.is_dir() else path)
    problems, who = [], None
    if key is not None or "signature" in certificate:
        from canary.certification import signature  # needs cryptography

        problems, who = signature.check(certificate, key)
    policies = None if run is None else _policies_of(certificate, run, environment)
    problems += verify(certificate, policies, quiet=quiet)
    return {
        "path": str(path),
        "valid": not problems,
        "level": "nothing" if problems else "consistent" if run is None else "replayed",
        "verdict": certificate.get("verdict"),
        "sentence": certificate.get("sentence"),
        "problems": problems,
        "signed_by": who,
    }


def read(path: Path) -> dict[str, Any]:
    """The certificate in a JSON file."""
    try:
        certificate = files.parse_object(files.read_bytes(path))
        if certificate.get("format") != FORMAT or not isinstance(certificate.get("origin"), dict):
            found = certificate.get("format")
            raise ValueError(f"its format is {found!r:.40}, and this version reads {FORMAT}")
    except (OSError, ValueError, RecursionError) as error:
        reason = files.reason_of(error)
        raise CanaryError(f"{path} is no certificate that can be read ({reason:.200}).") from None
    return certificate


def _policies_of(
    certificate: dict[str, Any], run: Path, environment: Environment | None
) -> FrozenPolicies:
    """The policies of a certificate if the run still has them, else the newest."""
    config = open_config(run, environment, accept_change=True)
    steps = {update: update * config.training.batch for update in stored_updates(run)}
    return load_policies(config, run, steps.get(certificate["origin"].get("updates")))


def verify(
    data: dict[str, Any], policies: FrozenPolicies | None = None, *, quiet: bool = True
) -> list[str]:
    """Problems of a certificate, a sentence each. With policies, their episodes are played again."""
    try:
        problems = list(_differences(data, _issued_again(data, policies, quiet=quiet)))
    except CanaryError as error:
        return [str(error)]
    except MALFORMED as error:
        return [f"The certificate is malformed ({type(error).__name__}: {error!s:.200})."]
    if problems and policies is not None and data.get("versions") != versions():
        problems.insert(0, "Other versions made it, which may round differently.")
    return problems[:MOST_PROBLEMS]


def _issued_again(
    data: dict[str, Any], policies: FrozenPolicies | None, *, quiet: bool
) -> dict[str, Any]:
    """The certificate issued from its listed costs or, with policies, from its episodes."""
    constraint, listed = constraint_of(data), data["results"]
    parts = parts_of(constraint)
    # A removed result changes the number of statements
    plan = complete(replace(Plan(**data["plan"]), statements=len(listed)), constraint)
    if policies is not None:
        each = listed[:: len(parts)]  # one result per policy
        statements = [(one["changes"], one["seed"]) for one in each]
        counts = [one["episodes"] for one in each]
        how = plan, data["evaluation_seed"], counts
        return issue(policies, statements, constraint, *how, quiet=quiet)
    results = [
        Result(
            costs=decode_costs(one["costs"]),
            plan=plan,
            constraint=parts[index % len(parts)],
            **{name: one[name] for name in LABELS},
        )
        for index, one in enumerate(listed)
    ]
    return judge(results, plan, constraint, data["origin"].get("environment_changes", []))


def _differences(found: Any, issued: Any, place: str = "") -> Iterator[str]:
    """Differences, beyond rounding, between a certificate and the one issued again."""
    if isinstance(issued, dict) and isinstance(found, dict):
        for name, value in issued.items():
            yield from _differences(found.get(name, "missing"), value, f"{place}.{name}")
    elif isinstance(issued, list) and isinstance(found, list) and len(issued) == len(found):
        for index, pair in enumerate(zip(found, issued, strict=True)):
            yield from _differences(*pair, f"{place}.{index}")
    else:
        numbers = isinstance(found, float) and isinstance(issued, float)
        if not (
            math.isclose(found, issued, rel_tol=TOLERANCE, abs_tol=1e-9)
            if numbers
            else found == issued
        ):
            yield f"{place[1:]} is {found!r:.60} in the certificate but should be {issued!r:.60}."
