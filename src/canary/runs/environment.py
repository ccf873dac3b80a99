"""The environment of a run: its description in the manifest, trust in its code, and changes since
training.

One of canary's own is identified by its name. Any other is identified by its class
(`module:qualname`), its settings, and its behaviour under random actions. To build it, canary imports
and calls the code that the manifest names, so a run from elsewhere could execute anything. The user
must trust it, once for each run; a run that was trained here is trusted.
"""

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from canary.checking.record import (
    behaviour_differences,
    findings_in,
    fingerprint,
    first_record,
    raise_first_error,
)
from canary.checking.structure import check_structure
from canary.config.config import check_method
from canary.config.run_config import RunConfig, config_from_dict
from canary.config.sources import Source, build, source_of
from canary.environments import ENVIRONMENTS
from canary.environments.protocol import Environment, name_of_environment, settings_of
from canary.errors import CanaryError
from canary.host.references import look_up
from canary.runs.directory import read_config
from canary.runs.files import digest_of
from canary.runs.settings import differences

_agreed: set[str] = set()  # for this process, in case no file can be written


def agree(run: Path, *, trust: bool) -> None:
    """Remember that the user trusts the code that a run names, or raise if the user does not."""
    for source in filter(None, _code_of(read_config(run))):
        _agree_to(run, source, trust)


def _code_of(config: dict[str, Any]) -> tuple[Source | None, Source | None]:
    """The user's own code that a run names: the method and the environment."""
    method, environment = config["algorithm"]["method"], config["environment"].get("source")
    return Source(method) if ":" in method else None, environment and Source(**environment)


def _agree_to(run: Path, source: Source, trust: bool) -> None:
    # Trust is in the whole reference: other arguments may do other things.
    entry = digest_of({"run": str(run.resolve()), **source.to_dict()})
    home = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    mark = Path(home) / "canary" / "trusted" / entry
    if entry in _agreed or mark.exists():
        return
    if not trust:
        raise CanaryError(
            f"{run} was trained on {source}, which is code that must be imported and called. If "
            "you trust it, use --trust (in Python: canary.load(RUN, trust=True), or "
            "canary.load(RUN, environment))."
        )
    _agreed.add(entry)
    with contextlib.suppress(OSError):  # then the next process needs --trust
        mark.parent.mkdir(parents=True, exist_ok=True)
        mark.touch()


def open_config(
    run: Path,
    environment: Environment | None = None,
    *,
    trust: bool = False,
    accept_change: bool = False,
) -> RunConfig:
    """The configuration of a run with its environment: the given one, or the one that the run
    names.

    A changed environment is refused, or accepted with `accept_change`; then the configuration,
    evaluations and certificates state the differences.
    """
    data, method = read_config(run), None
    stored, (own, source) = data["environment"], _code_of(data)
    if own is not None:
        _agree_to(run, own, trust)
        method = look_up(own.name)
        check_method(method)
    if environment is None and source is not None:
        _agree_to(run, source, trust)
        environment = build(source)
    if environment is None and "class" in stored:
        raise CanaryError(
            f"{run} was trained on {stored['class']}, which cannot be imported: in Python, "
            "canary.load(RUN, environment). The command line needs it, and the function of its cost "
            "if it has one, in a module that can be imported, not in the script that runs."
        )
    if environment is None:
        return config_from_dict(data, method=method)
    check_structure(environment)
    changes = environment_changes(stored, environment)
    if not accept_change:
        refuse_changes(run, changes)
    return config_from_dict(data, environment, tuple(changes), method)


def refuse_changes(run: Path, changes: Sequence[str]) -> None:
    """Raise if the environment of a run has changed."""
    if changes:
        raise CanaryError(
            f"The environment is not the one that {run} was trained on: {'; '.join(changes)}. "
            "Restore it, or train a new run. Only `canary evaluate` and `canary certify` accept a "
            "changed one, with --accept-change (in Python: canary.load(RUN, accept_change=True)), "
            "and report the change."
        )


def describe_environment(environment: Environment) -> dict[str, Any]:
    """The manifest's description of an environment. Raises if the environment has a mistake."""
    name, settings = name_of_environment(environment), settings_of(environment)
    described: dict[str, Any] = {"name": name, "settings": settings}
    if is_ours(environment):
        return described
    if (source := source_of(environment)) is not None:
        described["source"] = source.to_dict()
    return described | {"class": class_of(environment), "behaviour": behaviour_of(environment)}


def is_ours(environment: Environment) -> bool:
    """Whether this package has the environment under a name."""
    return type(environment) in ENVIRONMENTS.values()


def class_of(environment: Environment) -> str:
    """The class of an environment, as `module:qualname`."""
    return f"{type(environment).__module__}:{type(environment).__qualname__}"


def environment_changes(stored: dict[str, Any], environment: Environment) -> list[str]:
    """Differences from the stored environment in class, settings or behaviour."""
    ours, name = is_ours(environment), name_of_environment(environment)
    before, after = stored.get("class"), None if ours else class_of(environment)
    # A class of a script is `__main__:Name` in the script, `script:Name` when imported
    module, _, own = str(before).partition(":")
    same = str(after).endswith(f":{own}") if module == "__main__" else before == after
    if stored.get("name") != name or not same:
        known, found = before or f"canary's {stored.get('name')}", after or f"canary's {name}"
        return [f"it is {found}, not {known}"]
    changes = [
        text.replace(" and was ", " here and was ", 1)
        for text in differences(stored.get("settings"), settings_of(environment))
        if not (ours and text.endswith((" is new", " is missing")))  # they differ between versions
    ]
    if changes or ours:
        return changes
    found = behaviour_of(environment)
    changes = behaviour_differences(stored["behaviour"], found)
    if changes and behaviour_differences(found, behaviour_of(environment)):
        return []  # the environment is not reproducible
    return [f"on the same keys {text}" for text in changes]


def behaviour_of(environment: Environment) -> dict[str, list[float]]:
    """The fingerprint of random episodes; raises if they show a mistake."""
    record = first_record(environment)
    raise_first_error(findings_in(environment, record))
    return fingerprint(record)
