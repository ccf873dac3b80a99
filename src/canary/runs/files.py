"""Files that appear whole or not at all, that are never written through a link, and that are read
with a bound.

A file is written under a name that nobody can guess, beside the place where it belongs, and then
renamed. The writer keeps a lock on it meanwhile, so that whoever finds such a file later can tell a
writer at work from one that was killed. Below a run directory no link to another directory is
followed: what belongs to a run stays in it.
"""

import contextlib
import errno
import hashlib
import json
import math
import os
import re
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from canary.errors import CanaryError

try:
    import fcntl
except ImportError:  # not a POSIX system: no locks, and no orphans are removed
    fcntl = None  # type: ignore[assignment]

LARGEST_JSON = 256 * 2**20
TEMPORARY = re.compile(r"\..+\.[0-9a-f]{16}\.tmp")
NO_FOLLOW = getattr(os, "O_NOFOLLOW", 0)


def write_atomically(path: Path, data: bytes, *, within: Path | None = None) -> None:
    """Give `path` this content, durably, or leave it as it was and raise a sentence.

    `within` is the run that the file belongs to: no directory between the two may be a link.
    """
    try:
        if within is not None:
            refuse_links(path.parent, within)
        with _temporary(path) as descriptor:
            _write_all(descriptor, data)
            os.fsync(descriptor)
        if os.name == "posix":  # a rename survives a power cut once its directory is flushed
            folder = os.open(path.parent, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
    except (OSError, ValueError) as error:  # ValueError: a name with a NUL
        raise cannot_write(path, error) from error
    remove_orphans(path.parent, path.name)  # of those who were killed while they wrote this file


@contextmanager
def _temporary(path: Path) -> Iterator[int]:
    """A new file beside `path`, open for writing and locked; it takes the place of `path` at the
    end."""
    # A name of 255 bytes leaves no room for more, so the start of a long one must do.
    place = path.with_name(f".{path.name[:100]}.{secrets.token_hex(8)}.tmp")
    descriptor = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL | NO_FOLLOW, 0o666)
    try:
        if fcntl is not None:
            with contextlib.suppress(OSError):  # a file system without locks
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield descriptor
        os.replace(place, path)
    except BaseException:  # whatever stopped us, Ctrl-C included, leaves nothing half-written
        with contextlib.suppress(OSError):
            place.unlink(missing_ok=True)
        raise
    finally:
        os.close(descriptor)


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def remove_orphans(folder: Path, name: str = "") -> None:
    """Remove the temporary files that killed writers (of the file `name`) left; those of living
    ones stay."""
    if fcntl is None or folder.is_symlink() or not folder.is_dir():
        return
    for path in [each for each in folder.iterdir() if TEMPORARY.fullmatch(each.name)]:
        if not path.name.startswith(f".{name[:100]}"):
            continue
        with contextlib.suppress(OSError):
            descriptor = os.open(path, os.O_RDONLY | NO_FOLLOW | os.O_NONBLOCK)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                path.unlink()
            finally:
                os.close(descriptor)


def refuse_links(folder: Path, within: Path) -> None:
    """Raise a sentence if a directory from the run down to `folder` is a link: it would lead out of
    the run."""
    for part in (folder, *folder.parents):
        if part == within:
            return
        if part.is_symlink():
            raise CanaryError(
                f"{part} is a link, and nothing of a run is written through links; put a directory "
                "in its place."
            )
    raise CanaryError(f"{folder} does not lie in {within}.")


def make_folder(folder: Path, *, within: Path | None = None) -> None:
    """Make a directory where there is none, or raise a sentence."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:
        raise cannot_write(folder, error) from error
    if within is not None:
        refuse_links(folder, within)


def check_name(path: Path) -> None:
    """Raise a sentence about a name that no file can have: one with a NUL, or one that is too
    long."""
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        pass
    except (OSError, ValueError) as error:
        raise cannot_write(path, error) from error


def check_writable(folder: Path) -> None:
    """Raise a sentence if nothing can be written here: now, rather than after an hour of
    playing."""
    probe = folder / f".probe.{secrets.token_hex(8)}.tmp"
    try:
        descriptor = os.open(probe, os.O_WRONLY | os.O_CREAT | os.O_EXCL | NO_FOLLOW, 0o600)
        try:
            os.write(descriptor, b"\0" * 4096)
            os.fsync(descriptor)  # a full disk may only be noticed here
        finally:
            os.close(descriptor)
            probe.unlink(missing_ok=True)
    except OSError as error:
        raise cannot_write(folder, error) from error
    remove_orphans(folder)  # probes of those who were killed just here, for example


def cannot_write(path: Path, error: Exception) -> CanaryError:
    reason = getattr(error, "strerror", None) or str(error)
    return CanaryError(
        f"Cannot write {path} ({reason}); choose a place with room and write permission."
    )


def write_json(path: Path, value: dict[str, Any], *, within: Path | None = None) -> None:
    """Write a JSON object atomically; NaN and infinity, which JSON cannot hold, are a programming
    error."""
    write_atomically(
        path, (json.dumps(value, indent=2, allow_nan=False) + "\n").encode(), within=within
    )


def read_bytes(path: Path, largest: int = LARGEST_JSON) -> bytes:
    """The content of a regular file of a bounded size; pipes and devices, which may never end, are
    refused."""
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    try:
        facts = os.fstat(descriptor)
        if not stat.S_ISREG(facts.st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file")
        if facts.st_size > largest:
            raise OSError(
                errno.EFBIG,
                f"it has {facts.st_size:,} bytes, more than the {largest:,} that are read",
            )
        with os.fdopen(os.dup(descriptor), "rb") as file:
            return file.read(largest + 1)
    finally:
        os.close(descriptor)


def read_json(path: Path, missing: str = "the directory is not a complete run") -> dict[str, Any]:
    """Read a JSON object, or say which file is missing (and what that means) or damaged."""
    try:
        return parse_object(read_bytes(path))
    except FileNotFoundError as error:
        raise CanaryError(f"{path} is missing; {missing}.") from error
    except (OSError, ValueError, RecursionError) as error:
        raise CanaryError(
            f"{path} is damaged ({_short(error)}); restore it or start a new run."
        ) from error


def parse_object(data: bytes | str) -> dict[str, Any]:
    """A JSON object whose numbers are finite and that names nothing twice; a ValueError
    otherwise."""
    value = json.loads(
        data,
        object_pairs_hook=_unique,
        parse_constant=_refuse,
        parse_float=_finite,
        parse_int=_whole,
    )
    if not isinstance(value, dict):
        raise ValueError("not a JSON object")
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Two readers may take different ones of two equal names."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name stands twice in one object")
    return found


def _refuse(text: str) -> Any:
    raise ValueError(f"{text} is no number in JSON")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"the number {text[:20]} is too large")
    return value


def _whole(text: str) -> int:
    if len(text) > 30:
        raise ValueError(f"the number {text[:20]}... has {len(text)} digits")
    return int(text)


def digest_of(value: dict[str, Any]) -> str:
    """SHA-256 of JSON data, with sorted keys and no spaces."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


SEAL = "sha256"


def sealed(value: dict[str, Any]) -> dict[str, Any]:
    """JSON data with the digest of what they say."""
    return value | {SEAL: digest_of(value)}


def unsealed(value: dict[str, Any], path: Path) -> dict[str, Any]:
    """What they say, if it is what they said when they were sealed; those of earlier versions had
    no seal."""
    said = {name: entry for name, entry in value.items() if name != SEAL}
    if SEAL in value and value[SEAL] != digest_of(said):
        raise CanaryError(f"{path} is damaged (its content does not match its digest); restore it.")
    return said


def _short(error: Exception) -> str:
    text = " ".join(str(error).split())
    return text if len(text) <= 200 else f"{text[:200]}..."


def check_target(path: Path) -> None:
    """Raise a sentence if a file cannot get this name because a directory, pipe or device has it."""
    check_name(path)
    if os.path.exists(path) and not os.path.isfile(path):
        kind = "a directory" if os.path.isdir(path) else "not a regular file"
        raise CanaryError(f"{path} is {kind} and is not replaced; name another file.")
