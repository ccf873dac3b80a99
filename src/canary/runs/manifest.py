"""A run's manifest: what the run is, where it ran, its status, its configuration, and the digest of
every table.

It carries the digest of its own content, so that no flipped bit passes for another number of steps.
Only the process that trains the run writes it.
"""

import hashlib
import os
import re
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from canary.errors import CanaryError
from canary.runs import lock
from canary.runs.files import read_json, sealed, unsealed, write_json
from canary.runs.settings import differences

NAME = "manifest.json"
RUN_NAME, TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,99}"), re.compile(r"\S(.{0,48}\S)?")
# The code that makes the numbers of a run.
MATHEMATICS = (
    "types.py",
    "numerics",
    "environments",
    "networks.py",
    "rollout.py",
    "algorithms",
    "training.py",
)


def read_manifest(run: Path) -> dict[str, Any]:
    """The manifest with its `status` as it is now: a run that no process holds is not running."""
    manifest = stored_manifest(run)
    if manifest["status"] == "running" and not lock.is_held(run):
        return manifest | {"status": "interrupted"}
    return manifest


def stored_manifest(run: Path) -> dict[str, Any]:
    """The manifest as it was written, without its digest; one that was changed is refused."""
    return unsealed(read_json(run / NAME), run / NAME)


def write_manifest(run: Path, manifest: dict[str, Any]) -> None:
    write_json(run / NAME, sealed(manifest), within=run)


def update_manifest(run: Path, **changes: Any) -> None:
    write_manifest(run, stored_manifest(run) | changes)


def process_identity() -> dict[str, Any]:
    return {"pid": os.getpid(), "hostname": socket.gethostname()}


def holder_of(run: Path) -> str:
    """The process that trains a run, in words."""
    process = stored_manifest(run)["process"]
    return f"process {process.get('pid')} on {process.get('hostname')}"


def read_config(run: Path) -> dict[str, Any]:
    """config.json, if it is what the run began with, with the longer plan of an extended run."""
    config, manifest = read_json(run / "config.json"), stored_manifest(run)
    if config != manifest["config"]:
        raise CanaryError(
            f"{run / 'config.json'} was changed after the run began: "
            f"{(differences(manifest['config'], config) or ['its structure'])[0]}; restore it, or "
            "train a new run with other settings."
        )
    return as_planned(config, manifest)


def as_planned(config: dict[str, Any], manifest: dict[str, Any]) -> dict[str, Any]:
    """A stored configuration, with the longer plan if the run was extended."""
    extended = manifest.get("extended_steps")
    if extended is None:
        return config
    return config | {"training": config["training"] | {"total_steps": extended}}


def code_fingerprint() -> str:
    """The same fingerprint, the same numbers on the same machine."""
    root = Path(__file__).parents[1]
    digest = hashlib.sha256()
    for name in MATHEMATICS:
        for path in sorted((root / name).rglob("*.py")) or [root / name]:
            digest.update(path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:12]


def codes_of(manifest: dict[str, Any]) -> str:
    """The fingerprints of all code that trained a run, in their order."""
    return " ".join(map(str, manifest["code"]))


@dataclass(frozen=True)
class Labels:
    """What a user calls a run: its name, its tags, and the logs it writes for other tools."""

    name: str | None = None
    """The name of the run's directory; None: made of environment, algorithm and time."""
    tags: tuple[str, ...] = ()
    log: tuple[str, ...] = ()


def checked_labels(
    root: Path, name: str | None, tags: Sequence[str] | str = (), log: Sequence[str] = ()
) -> Labels:
    """Labels that a new run below `root` can have; a sentence otherwise."""
    tags = tuple(dict.fromkeys([tags] if isinstance(tags, str) else tags))
    for tag in tags:
        if not isinstance(tag, str) or not TAG.fullmatch(tag) or "," in tag:
            raise CanaryError(f"A tag is a short text without commas, not {tag!r:.60}.")
    if name is not None:
        if not isinstance(name, str) or not RUN_NAME.fullmatch(name) or name == "latest":
            raise CanaryError(
                "A run's name consists of at most 100 letters, digits and _ . + -, and is not "
                f"latest; {name!r:.60} is not such a name."
            )
        if (root / name).exists():
            raise CanaryError(
                f"{root / name} exists already; choose another --name, or go on with it: canary "
                f"train --resume {name}."
            )
    return Labels(name, tags, tuple(log))


def labels_of(manifest: dict[str, Any]) -> Labels:
    """The labels in a manifest."""
    return Labels(None, tuple(manifest.get("tags", ())), tuple(manifest.get("log", ())))
