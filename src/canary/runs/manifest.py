"""A run's manifest: what the run is, its configuration, where it ran, and its status. And the lock:
one process at a time trains a run, and only that one writes the manifest.

The manifest has the digest of its own content, so a changed one is noticed. The kernel releases the
lock when the process ends, however it ends.
"""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from canary.errors import CanaryError
from canary.runs.files import cannot_write, read_sealed, write_sealed

NAME, LOCK = "manifest.json", ".lock"
LOCK_SECONDS = 1.0  # `is_held` takes the lock for an instant
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


def read_config(run: Path) -> dict[str, Any]:
    """The configuration of a run as it is planned now."""
    return stored_manifest(run)["config"]


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
