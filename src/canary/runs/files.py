"""Every file that canary writes or reads goes through here.

A file appears whole or not at all: it is written under a random name beside its place and then
renamed, so a link in its place is replaced, not followed. Reading is bounded.
"""

import contextlib
import errno
import hashlib
import json
import math
import os
import re
import secrets
import shutil
import time
from pathlib import Path
from typing import Any

from canary.errors import CanaryError

LARGEST = 1 << 34
LARGEST_JSON = 1 << 28
UNFINISHED = re.compile(r"\..+\.[0-9a-f]{16}\.(tmp|draft)")
OLD_SECONDS = 3600.0
SEAL = "sha256"


def unfinished(path: Path, kind: str) -> Path:
    """Where something is made before it gets its name, beside it. A name has at most 255 bytes, so
    only the start of a long one is used."""
    return path.with_name(f".{path.name[:100]}.{secrets.token_hex(8)}.{kind}")


def write_atomically(path: Path, data: bytes) -> None:
    """Give `path` this content, durably, or leave it as it was and raise."""
    check_target(path)
    place = unfinished(path, "tmp")
    try:
        with open(place, "xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(place, path)
        if os.name == "posix":  # a rename survives a power cut once its directory is flushed
            folder = os.open(path.parent, os.O_RDONLY)
            os.fsync(folder)
            os.close(folder)
    except BaseException as error:
        with contextlib.suppress(OSError):
            place.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise cannot_write(path, error) from error
        raise


def remove_unfinished(folder: Path) -> None:
    """Remove what killed processes left in a directory: unfinished files and runs that are an hour
    old."""
    for path in folder.glob(".*"):
        with contextlib.suppress(OSError):
            is_old = time.time() - path.lstat().st_mtime > OLD_SECONDS
            if UNFINISHED.fullmatch(path.name) and is_old:
                shutil.rmtree(path) if path.is_dir() else path.unlink()


def make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:
        raise cannot_write(folder, error) from error


def check_writable(folder: Path) -> None:
    """Raise if nothing can be written into a directory: before the work, not after."""
    remove_unfinished(folder)
    probe = unfinished(folder / "probe", "tmp")
    write_atomically(probe, bytes(4096))
    probe.unlink(missing_ok=True)


def check_name(path: Path) -> None:
    """Raise if no file can have this name: it has a NUL, or is too long."""
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        pass
    except (OSError, ValueError) as error:
        raise cannot_write(path, error) from error


def check_target(path: Path) -> None:
    """Raise if no file can get this name, or if a directory, pipe or device has it."""
    check_name(path)
    if path.exists() and not path.is_file():
        kind = "a directory" if path.is_dir() else "not a regular file"
        raise CanaryError(f"{path} is {kind} and is not replaced; name another file.")


def cannot_write(path: Path, error: Exception) -> CanaryError:
    return CanaryError(
        f"Cannot write {path} ({reason_of(error)}); choose a place with room and write permission."
    )


def reason_of(error: Exception) -> str:
    """What went wrong, without the number and the path that an OSError adds."""
    return getattr(error, "strerror", None) or str(error)


def read_bytes(path: Path, largest: int = LARGEST) -> bytes:
    """As much of a file as its size says, which is nothing of a pipe or a device: they may never
    end."""
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    with os.fdopen(descriptor, "rb") as file:
        size = os.fstat(descriptor).st_size
        if size > largest:
            raise OSError(errno.EFBIG, f"it has {size:,} bytes, more than {largest:,}")
        return file.read(size)


def write_json(path: Path, value: dict[str, Any]) -> None:
    text = json.dumps(value, indent=2, allow_nan=False) + "\n"
    write_atomically(path, text.encode())


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object, or a sentence about the missing file or the damage."""
    try:
        return parse_object(read_bytes(path, LARGEST_JSON))
    except FileNotFoundError as error:
        raise CanaryError(f"{path} is missing; the run or study is not complete.") from error
    except (OSError, ValueError, RecursionError) as error:
        raise damaged(path, error, "restore it or start a new run") from error


def damaged(path: Path, error: BaseException, advice: str = "restore it") -> CanaryError:
    text = " ".join(str(error).split()) or type(error).__name__
    return CanaryError(f"{path} is damaged ({text[:200]}); {advice}.")


def parse_object(data: bytes | str) -> dict[str, Any]:
    """A JSON object of finite numbers."""
    value = json.loads(data, parse_constant=_finite, parse_float=_finite)
    if not isinstance(value, dict):
        raise ValueError("not a JSON object")
    return value


def _finite(text: str) -> float:
    if not math.isfinite(value := float(text)):
        raise ValueError(f"the number {text[:20]} is not finite")
    return value


def digest_of(value: dict[str, Any]) -> str:
    """SHA-256 of JSON data as text with sorted keys and no spaces."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def write_sealed(path: Path, value: dict[str, Any]) -> None:
    """Write JSON data with the digest of their content."""
    write_json(path, value | {SEAL: digest_of(value)})


def read_sealed(path: Path) -> dict[str, Any]:
    """What `write_sealed` wrote, without the digest; a changed file is refused."""
    value = read_json(path)
    if value.pop(SEAL, None) != digest_of(value):
        raise damaged(path, ValueError("its content does not match its digest"))
    return value
