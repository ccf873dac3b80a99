"""A run's manifest: what the run is, where it ran, its status, its configuration, and the digest of
every table.

It states the digest of its own content, so that no flipped byte passes for another number of steps.
Its readers may rely on the fields that every run has from its first moment. Runs that older
versions made have neither digests nor a copy of the configuration; they are read as they are, and
sealed when they are trained on.
"""

import hashlib
import re
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from canary.errors import CanaryError
from canary.runs import lock
from canary.runs.files import digest_of, read_json, write_json

NAME = "manifest.json"
FIELDS = {
    "status": str,
    "steps": int,
    "total_steps": int,
    "seeds": int,
    "env": str,
    "algorithm": str,
    "process": dict,
}
STATES = ("running", "interrupted", "stopped", "finished", "failed")
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
    """The manifest with its `status` as it is now: a run that nobody holds any more is not running
    any more."""
    manifest = stored_manifest(run)
    return manifest | {"status": run_status(run, manifest)}


def stored_manifest(run: Path) -> dict[str, Any]:
    """The manifest as it was written, without its digest; one that was changed is refused."""
    path = run / NAME
    manifest = read_json(path)
    stated = manifest.pop("sha256", None)
    is_sealed = stated is not None or "config" in manifest or "tables" in manifest
    if is_sealed and stated != digest_of(manifest):
        raise CanaryError(f"{path} is damaged (its content does not match its digest); restore it.")
    for name, kind in FIELDS.items():
        if not isinstance(manifest.get(name), kind) or isinstance(manifest.get(name), bool):
            raise CanaryError(
                f"{path} is damaged (no valid {name!r}); restore it or start a new run."
            )
    for name in ("train_seconds", "wall_seconds"):
        if not isinstance(manifest.get(name, 0), int | float):
            raise CanaryError(
                f"{path} is damaged (no valid {name!r}); restore it or start a new run."
            )
    if manifest["status"] not in STATES:
        raise CanaryError(f"{path} is damaged (no valid 'status'); restore it or start a new run.")
    return manifest


def write_manifest(run: Path, manifest: dict[str, Any]) -> None:
    write_json(run / NAME, manifest | {"sha256": digest_of(manifest)}, within=run)


def update_manifest(run: Path, **changes: Any) -> None:
    """Change fields: `steps` at a checkpoint, `tables` before it, `status` at the end. For the
    holder of the run alone."""
    write_manifest(run, stored_manifest(run) | changes)


def run_status(run: Path, manifest: dict[str, Any]) -> str:
    """running, interrupted, stopped (by a callback), finished or failed."""
    if (
        manifest["status"] != "running"
        or lock.holder(run) is not None
        or is_trained_by_older_version(manifest)
    ):
        return str(manifest["status"])
    return "interrupted"


def is_trained_by_older_version(manifest: dict[str, Any]) -> bool:
    """Older versions held no lock: their process is known by its number and the time it began."""
    process = manifest["process"]
    if (
        manifest["status"] != "running"
        or "start_time" not in process
        or process.get("hostname") != socket.gethostname()
    ):
        return False
    try:
        fields = Path(f"/proc/{int(process['pid'])}/stat").read_text().rpartition(")")[2].split()
    except (OSError, KeyError, TypeError, ValueError):
        return False
    return fields[0] not in "ZX" and fields[19] == process["start_time"]


def read_config(run: Path) -> dict[str, Any]:
    """config.json, if it is what the run began with; else a sentence that names what was changed.

    A run that was told to train longer (`extension`) has the longer plan.
    """
    config = read_json(run / "config.json")
    if not (run / NAME).exists():
        raise CanaryError(f"{run / NAME} is missing; the directory is not a complete run.")
    manifest = stored_manifest(run)
    original = manifest.get("config")
    if original is not None and config != original:
        raise CanaryError(
            f"{run / 'config.json'} was changed after the run began: "
            f"{differences(original, config)[0]}; restore it, or "
            "train a new run with other settings."
        )
    return as_planned(config, manifest)


def as_planned(config: dict[str, Any], manifest: dict[str, Any]) -> dict[str, Any]:
    """A stored configuration, with the longer plan if the run was told to train longer."""
    extended = manifest.get("extended_steps")
    if extended is not None and isinstance(config.get("training"), dict):
        return config | {"training": config["training"] | {"total_steps": extended}}
    return config


def differences(original: Any, found: Any, place: str = "") -> list[str]:
    """How JSON data differ from what they were, each by its place: `constraint.limit is 50.0 and
    was 5.5`."""
    if isinstance(original, dict) and isinstance(found, dict):
        names = [*original, *(name for name in found if name not in original)]
        parts = [(name, original.get(name, ...), found.get(name, ...)) for name in names]
        return [
            text
            for name, was, now in parts
            for text in differences(was, now, f"{place}.{name}".lstrip("."))
        ]
    if type(original) is type(found) and original == found:
        return []
    if original is ... or found is ...:
        return [f"{place} is {'new' if original is ... else 'missing'}"]
    return [f"{place or 'it'} is {found!r:.60} and was {original!r:.60}"]


def code_fingerprint() -> str:
    """The same fingerprint, the same numbers on the same machine."""
    root = Path(__file__).parents[1]
    digest = hashlib.sha256()
    for name in MATHEMATICS:
        for path in (
            sorted((root / name).rglob("*.py")) if (root / name).is_dir() else [root / name]
        ):
            digest.update(path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:12]


def codes_of(manifest: dict[str, Any]) -> str | None:
    """The fingerprints of all code that trained a run, in their order; None if its first is not
    known."""
    return " ".join(map(str, manifest["code"])) if isinstance(manifest.get("code"), list) else None


def with_this_code(manifest: dict[str, Any]) -> dict[str, list[str]]:
    """The entry of a manifest whose run goes on with this code; none if nobody knows with which it
    began."""
    codes, this = manifest.get("code"), code_fingerprint()
    if not isinstance(codes, list):
        return {}
    return {"code": codes if codes and codes[-1] == this else [*codes, this]}


@dataclass(frozen=True)
class Labels:
    """What a user calls a run: its name, its tags, and the logs it writes for other tools."""

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
        if not isinstance(name, str) or not RUN_NAME.fullmatch(name) or name == "latest":
            raise CanaryError(
                "A run's name has letters, digits and _ . + - in it, 100 at most, and is not "
                f"latest; {name!r:.60} is none."
            )
        if (root / name).exists():
            raise CanaryError(
                f"{root / name} exists already; choose another --name, or go on with it: canary "
                f"train --resume {name}."
            )
    return Labels(name, tags, tuple(log))


def labels_of(manifest: dict[str, Any]) -> Labels:
    """The labels in a manifest; runs of earlier versions have none."""

    def texts(value: Any) -> tuple[str, ...]:
        return (
            tuple(text for text in value if isinstance(text, str))
            if isinstance(value, list)
            else ()
        )

    return Labels(None, texts(manifest.get("tags")), texts(manifest.get("log")))
