"""Open a run: read its configuration, make its environment again, and see that it is the one it was
trained on."""

import hashlib
import inspect
import sys
from functools import lru_cache
from pathlib import Path
from typing import Any

from canary.checking.behaviour import check_behaviour
from canary.checking.check import short_record
from canary.checking.findings import raise_first_error
from canary.checking.probe import differences, fingerprint
from canary.checking.structure import check_structure
from canary.config.config import config_from_dict
from canary.config.run_config import RunConfig
from canary.config.sources import build, source_from_dict, source_of
from canary.environments import ENVIRONMENTS
from canary.environments.protocol import Environment, close
from canary.environments.settings import name_of_environment, settings_of
from canary.errors import CanaryError
from canary.runs import directory
from canary.runs.trust import NeedsTrust, is_trusted, remember

MAY_ACCEPT = "Pass the same one, or say --accept-change (in Python: accept_change=True)."
NEEDS_THE_SAME = (
    "This needs the same one: restore it, or train a new run. Only `canary evaluate` and `canary "
    "certify` take a changed one, with --accept-change (in Python: accept_change=True), and say so."
)


def open_config(
    run: Path,
    environment: Environment | None = None,
    *,
    trust: bool = False,
    accept_change: bool | None = None,
) -> RunConfig:
    """The configuration of a run with its environment: the given one, or the one that the run
    names.

    An environment that differs from what the run was trained on is refused, or, with
    `accept_change`, taken; the configuration then says what is different, and so do evaluations and
    certificates. None is for callers that cannot accept a change because they would leave no trace
    of it, such as training.
    """
    data = directory.read_config(run)
    stored = data.get("environment")
    stored = stored if isinstance(stored, dict) else {}
    if environment is None and "source" in stored:
        environment = _rebuild(run, stored, trust)
    if environment is None:
        return config_from_dict(data)
    raise_first_error(check_structure(environment))
    changes = environment_changes(stored, environment)
    if changes and not accept_change:
        advice = NEEDS_THE_SAME if accept_change is None else MAY_ACCEPT
        raise CanaryError(
            f"The environment is not the one that {run} was trained on: {'; '.join(changes)}. "
            f"{advice}"
        )
    return config_from_dict(data, environment, tuple(changes))


def describe_environment(environment: Environment) -> dict[str, Any]:
    """What config.json says about an environment: name and settings; of one that is not ours also
    how to make it again, and how it behaves. Raises the sentence of the first thing that is wrong
    with it.
    """
    described = {"name": name_of_environment(environment), "settings": settings_of(environment)}
    if is_ours(environment):
        return described
    source = source_of(environment)
    made = {} if source is None else {"source": source.to_dict()}
    known = {"file_sha256": source_file_digest(environment), "behaviour": behaviour_of(environment)}
    return described | made | known


def is_ours(environment: Environment) -> bool:
    """Whether it is one of the named environments, which this package makes and tests itself."""
    name = type(environment).__name__
    return name in ENVIRONMENTS and type(environment) is ENVIRONMENTS[name]


def source_file_digest(environment: Environment) -> str | None:
    """SHA-256 of the file that defines the environment, behind an adapter too; None if there is no
    such file."""
    source, name = source_of(environment), type(environment).__module__
    if source is not None:
        name = source.name.removeprefix(f"{source.adapter}:").rpartition(":")[0]
    if name not in sys.modules or name.partition(".")[0] == "canary":
        return None
    try:
        return hashlib.sha256(Path(inspect.getfile(sys.modules[name])).read_bytes()).hexdigest()
    except (OSError, TypeError):  # typed into a session
        return None


def environment_changes(stored: dict[str, Any], environment: Environment) -> list[str]:
    """How an environment differs from the stored one: in settings and, of one that is not ours, in
    behaviour."""
    changes = []
    name = name_of_environment(environment)
    if stored.get("name") != name:
        changes.append(f"it is {name}, not {stored.get('name')}")
    before, after = stored.get("settings"), settings_of(environment)
    before = before if isinstance(before, dict) else {}
    for key in sorted(before.keys() | after.keys()):
        if key not in after or key not in before:
            if not is_ours(
                environment
            ):  # versions of ours gain and lose settings that mean the same
                changes.append(f"{key} is a setting of only one of them")
        elif before[key] != after[key]:
            changes.append(f"{key} is {after[key]!r} here and was {before[key]!r}")
    if not changes and "behaviour" in stored and not is_ours(environment):
        changes += [f"on the same keys {text}" for text in _other(stored["behaviour"], environment)]
    return changes


def _other(stored: Any, environment: Environment) -> list[str]:
    """How an environment behaves unlike the stored one. If it has randomness of its own, which no
    key determines, it is unlike itself as well, and that tells nothing."""
    found = behaviour_of(environment)
    different = differences(stored, found)
    if different and differences(found, _behaviour.__wrapped__(environment)):
        return []
    return different


def behaviour_of(environment: Environment) -> dict[str, list[float]]:
    """The fingerprint of a short rollout, which must show no mistake. Remembered, for it takes a
    compilation."""
    try:
        return _behaviour(environment)
    except TypeError as error:
        if "unhashable" not in str(error):
            raise
        return _behaviour.__wrapped__(environment)


@lru_cache(maxsize=32)
def _behaviour(environment: Environment) -> dict[str, list[float]]:
    try:
        record = short_record(environment)
    finally:
        # What training needs, workers for instance, depends on how many lanes it has
        close(environment)
    raise_first_error(check_behaviour(environment, record))
    return fingerprint(record)


def _rebuild(run: Path, stored: dict[str, Any], trust: bool) -> Environment:
    source = source_from_dict(stored["source"])
    if not (trust or is_trusted(run, source)):
        raise NeedsTrust(run, source)
    environment = build(source)
    remember(run, source)
    return environment
