"""Whose code may be imported to work on a run: a list of runs and what they import, for this user.

A run that was trained on a user's own code names that code in its config.json. Making the
environment again imports and calls it, so a run from elsewhere could run anything. The user agrees
once for each run; training a run here is agreement.
"""

import contextlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from canary.config.sources import Source, method_source, source_from_dict
from canary.errors import CanaryError
from canary.runs.files import read_json, write_json


class NeedsTrust(CanaryError):
    """A run names code that nobody has agreed to import."""

    def __init__(self, run: Path, source: Source):
        self.run, self.source = run, source
        super().__init__(
            f"{run} was trained on {source}, which is code that has to be imported and called. If "
            "you trust it, say --trust (in Python: trust=True, or pass environment=...)."
        )


def trust_file() -> Path:
    home = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    return Path(home) / "canary" / "trusted.json"


_said: list[dict[str, Any]] = []  # in this process, also if the file cannot be written


def is_trusted(run: Path, source: Source) -> bool:
    return _entry(run, source) in (*_said, *_entries())


def agree(run: Path, *, trust: bool, ask: Callable[[str], bool] | None = None) -> None:
    """Before a run is opened: note that the user trusts it, or ask, or raise `NeedsTrust`."""
    for source in _sources(read_json(run / "config.json")):
        if is_trusted(run, source):
            continue
        question = f"{run} was trained on {source}. Import and call this code?"
        if not trust and (ask is None or not ask(question)):
            raise NeedsTrust(run, source)
        remember(run, source)


def _sources(config: dict[str, Any]) -> list[Source]:
    """The code that a run names: that of its environment and of its method."""
    stored = config.get("environment")
    own = stored.get("source") if isinstance(stored, dict) else None
    found = [None if own is None else source_from_dict(own), method_source(config)]
    return [source for source in found if source is not None]


def remember_all(run: Path, config: dict[str, Any]) -> None:
    """Trust what a new run names: it was just imported and called."""
    for source in _sources(config):
        remember(run, source)


def remember(run: Path, source: Source) -> None:
    """Do not ask about this run again. If the file cannot be written, the next process asks."""
    entries, entry = _entries(), _entry(run, source)
    _said.append(entry)
    if entry not in entries:
        with contextlib.suppress(OSError, CanaryError):
            trust_file().parent.mkdir(parents=True, exist_ok=True)
            write_json(trust_file(), {"trusted": [*entries, entry]})


def _entry(run: Path, source: Source) -> dict[str, Any]:
    """The whole reference: other arguments may do other things."""
    return {"run": str(run.resolve()), **json.loads(json.dumps(source.to_dict()))}


def _entries() -> list[dict[str, Any]]:
    try:
        found = read_json(trust_file())["trusted"]
    except (CanaryError, KeyError, OSError):
        return []
    return [entry for entry in found if isinstance(entry, dict)] if isinstance(found, list) else []
