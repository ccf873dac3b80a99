"""Where the results of a command go: tables to the terminal, JSON to `--json FILE|-`."""

import contextlib
import json
import os
import secrets
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from canary.errors import CanaryError
from canary.runs.directory import write_json

if TYPE_CHECKING:
    from canary.terminal.console import PlainConsole


def console_for(target: str | None) -> "PlainConsole":
    """Standard output, unless the JSON goes there."""
    from canary.terminal.console import PlainConsole

    console = PlainConsole(stderr=target == "-")
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = 120  # a file has no width
    return console


def check_json(target: str | None) -> None:
    """Raise a sentence if the JSON cannot be written, before the work that makes it."""
    if target is None or target == "-":
        return
    path = Path(target)
    if target == "" or "\0" in target:
        raise _no_place(target, "that is not a file name")
    probe = path.parent / f".probe.{secrets.token_hex(8)}.tmp"
    try:
        if path.is_dir():
            raise _no_place(target, "it is a directory")
        if path.exists() and not path.is_file():  # a pipe or a device: there is no way to try
            return
        probe.touch(exist_ok=False)
    except OSError as error:
        raise _no_place(target, error.strerror or str(error)) from error
    finally:
        with contextlib.suppress(OSError):
            probe.unlink()


def emit_json(target: str | None, value: Mapping[str, Any]) -> None:
    if target is None:
        return
    text = json.dumps(value, indent=2, allow_nan=False) + "\n"
    if target == "-":
        sys.stdout.write(text)
        sys.stdout.flush()
    elif not Path(target).exists() or Path(target).is_file():
        write_json(Path(target), dict(value))
    else:  # a pipe or a device is written to, never replaced
        try:
            Path(target).write_text(text)
        except OSError as error:
            raise _no_place(target, error.strerror or str(error)) from error


def _no_place(target: str, reason: str) -> CanaryError:
    return CanaryError(
        f"--json cannot write {target!r} ({reason}); name a file in a directory that you can write "
        "to."
    )
