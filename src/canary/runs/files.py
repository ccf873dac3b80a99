"""Write files whole or not at all, and explain in a sentence why one cannot be read.

A file is written under a temporary name and then renamed, so a link is replaced, not followed. The
next write replaces an incomplete file of a killed process.
"""

import contextlib
import hashlib
import json
import math
import os
from pathlib import Path
from typing import Any

from canary.errors import CanaryError

SEAL = "sha256"


def write_atomically(path: Path, data: bytes) -> None:
    """Write `data` to `path` durably, or raise and leave the file as it was."""
    check_target(path)
    place = path.with_name(f".{path.name}.tmp")
    try:
        place.unlink(missing_ok=True)
        with open(place, "xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(place, path)
        if os.name == "posix":  # a rename is durable after a flush of its directory
            folder = os.open(path.parent, os.O_RDONLY)
            os.fsync(folder)
            os.close(folder)
    except (OSError, ValueError) as error:
        _remove(place)
        raise cannot_write(path, error) from error
    except BaseException:
        _remove(place)
        raise


def _remove(path: Path) -> None:
    with contextlib.suppress(OSError, ValueError):
        path.unlink(missing_ok=True)


def make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:
        raise cannot_write(folder, error) from error


def check_writable(folder: Path) -> None:
    """Raise if a directory is not writable, before any work is done."""
    probe = folder / ".probe"
    write_atomically(probe, bytes(4096))
    _remove(probe)


def check_target(path: Path) -> None:
    """Raise if the path is a directory, a pipe or a device."""
    try:
        is_other = path.exists() and not path.is_file()
    except OSError as error:  # the name is too long
        raise cannot_write(path, error) from error
    if is_other:
        kind = "a directory" if path.is_dir() else "not a regular file"
        raise CanaryError(f"{path} is {kind} and is not replaced; name another file.")


def cannot_write(path: Path, error: Exception) -> CanaryError:
    return CanaryError(
        f"Cannot write {path} ({reason_of(error)}); choose a place with room and write permission."
    )


def reason_of(error: Exception) -> str:
    """The message of an error, without the number and path of an OSError."""
    return getattr(error, "strerror", None) or str(error)


def read_bytes(path: Path) -> bytes:
    """The content of a regular file; pipes and devices, which may never end, are refused."""
    if path.exists() and not path.is_file():
        raise OSError("it is not a regular file")
    return path.read_bytes()


def write_json(path: Path, value: dict[str, Any]) -> None:
    text = json.dumps(value, indent=2, allow_nan=False) + "\n"
    write_atomically(path, text.encode())


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a file; raises if it is missing or damaged."""
    try:
        return parse_object(read_bytes(path))
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
    """The data of `write_sealed`, without the digest; a changed file is refused."""
    value = read_json(path)
    if value.pop(SEAL, None) != digest_of(value):
        raise damaged(path, ValueError("its content does not match its digest"))
    return value
