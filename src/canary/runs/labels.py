"""What a user calls a run: its name, its tags, and the logs it writes for other tools. Kept in the manifest."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from canary.errors import CanaryError

NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,99}")
TAG = re.compile(r"\S(.{0,48}\S)?")


@dataclass(frozen=True)
class Labels:
    name: str | None = None
    """The name of the run's directory; None: made of environment, algorithm and time."""
    tags: tuple[str, ...] = ()
    log: tuple[str, ...] = ()

    def fields(self) -> dict[str, Any]:
        """As the manifest has them."""
        return {"tags": list(self.tags), "log": list(self.log)}


def checked_labels(
    root: Path, name: str | None, tags: Sequence[str] | str = (), log: Sequence[str] = ()
) -> Labels:
    """Labels that a new run below `root` can have; a sentence otherwise."""
    tags = tuple(dict.fromkeys([tags] if isinstance(tags, str) else tags))
    for tag in tags:
        if not isinstance(tag, str) or not TAG.fullmatch(tag) or "," in tag:
            raise CanaryError(f"A tag is a short text without commas, not {tag!r:.60}.")
    if name is not None:
        if not isinstance(name, str) or not NAME.fullmatch(name) or name == "latest":
            raise CanaryError(
                f"A run's name has letters, digits and _ . + - in it, 100 at most, and is not latest; {name!r:.60} is none."
            )
        if (root / name).exists():
            raise CanaryError(
                f"{root / name} exists already; choose another --name, or go on with it: canary train --resume {name}."
            )
    return Labels(name, tags, tuple(log))


def labels_of(manifest: dict[str, Any]) -> Labels:
    """The labels in a manifest; runs of earlier versions have none."""

    def texts(value: Any) -> tuple[str, ...]:
        return tuple(text for text in value if isinstance(text, str)) if isinstance(value, list) else ()

    return Labels(None, texts(manifest.get("tags")), texts(manifest.get("log")))
