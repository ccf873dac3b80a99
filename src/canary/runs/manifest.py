"""A run's manifest: what the run is, where it ran, its status, its configuration, and the digest of
every table. And the lock: one process at a time trains a run, and only that one writes the manifest.

The manifest has the digest of its own content, so a changed one is noticed. The kernel releases the
lock when the process ends, however it ends.
"""

import hashlib
import os
import re
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from canary.errors import CanaryError
from canary.runs.files import cannot_write, read_json, read_sealed, write_sealed
from canary.runs.settings import differences

NAME, LOCK = "manifest.json", ".lock"
LOCK_SECONDS = 1.0  # `is_held` takes the lock for an instant
RUN_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,99}")
TAG = re.compile(r"[^\s,]([^,]{0,48}[^\s,])?")
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
    if manifest["status"] == "running" and not is_held(run):
        return manifest | {"status": "interrupted"}
    return manifest


def stored_manifest(run: Path) -> dict[str, Any]:
    """The manifest as it was written, without its digest; one that was changed is refused."""
    return read_sealed(run / NAME)


def write_manifest(run: Path, manifest: dict[str, Any]) -> None:
    write_sealed(run / NAME, manifest)


def update_manifest(run: Path, **changes: Any) -> None:
    write_manifest(run, stored_manifest(run) | changes)


@contextmanager
def hold(run: Path) -> Iterator[None]:
    """Hold a run, or raise a sentence that names the process that trains it."""
    lock = FileLock(run / LOCK)
    try:
        lock.acquire(timeout=LOCK_SECONDS)
    except Timeout:
        process = stored_manifest(run)["process"]
        raise CanaryError(
            f"{run} is being trained by process {process['pid']} on {process['hostname']}; wait "
            "for it or stop it first."
        ) from None
    except (OSError, NotImplementedError) as error:
        raise cannot_write(run / LOCK, error) from error
    try:
        yield
    finally:
        lock.release()


def is_held(run: Path) -> bool:
    """Whether some process trains a run now."""
    if not (run / LOCK).is_file():
        return False
    try:
        with FileLock(run / LOCK).acquire(timeout=0):
            return False
    except Timeout:
        return True
    except (OSError, NotImplementedError):  # a place that cannot be written to: nobody trains here
        return False


def process_identity() -> dict[str, Any]:
    return {"pid": os.getpid(), "hostname": socket.gethostname()}


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
    """A digest of the code that makes numbers: if it is equal, so are they on the same machine."""
    root = Path(__file__).parents[1]
    digest = hashlib.sha256()
    for name in MATHEMATICS:
        for path in sorted((root / name).rglob("*.py")) or [root / name]:
            digest.update(path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:12]


def codes_of(manifest: dict[str, Any]) -> str:
    """The fingerprints of all code that trained a run, in their order."""
    return " ".join(map(str, manifest["code"]))


def check_labels(root: Path, name: str | None, tags: Sequence[str]) -> None:
    """Raise if a new run below `root` cannot have this name or one of these tags."""
    for tag in tags:
        if not TAG.fullmatch(tag):
            raise CanaryError(f"A tag is a short text without commas, not {tag!r:.60}.")
    if name is not None and (not RUN_NAME.fullmatch(name) or name == "latest"):
        raise CanaryError(
            "A run's name consists of at most 100 letters, digits and _ . + -, and is not latest; "
            f"{name!r:.60} is not such a name."
        )
    if name is not None and (root / name).exists():
        raise CanaryError(
            f"{root / name} exists already; choose another --name, or continue it: canary train "
            f"--resume {name}."
        )
