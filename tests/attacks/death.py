"""Death at the N-th write: of a process (SIGKILL), or of one command inside a process that lives
on.

A write is whatever changes the disk: a file that is created, written, flushed, renamed or removed.
Death comes before the write or, if `torn`, after half of its bytes. A command that dies inside a
living process gets a `Death` from its N-th write and from every one after it, so that no `finally`
can tidy up. The files that it held open are closed afterwards, as the kernel would do.
"""

import contextlib
import os
import signal
from collections.abc import Callable
from typing import Any

RENAMES = ("replace", "rename", "unlink", "mkdir", "rmdir")
WRITES = ("open", "write", "pwrite", "ftruncate", "fsync", *RENAMES)


class Death(BaseException):
    """What a command gets instead of a SIGKILL."""


class Mortal:
    """A context in which the write `at` is the last thing that happens; 0: it lives, and its writes
    are counted. `counted` are the kinds of writes that count."""

    def __init__(
        self, at: int, *, torn: bool = False, real: bool = False, counted: tuple[str, ...] = WRITES
    ):
        self._at, self._torn, self._real, self._counted = at, torn, real, counted
        self.writes = 0
        self.is_dead = False
        self._originals: dict[str, Callable[..., Any]] = {}
        self._held: set[int] = set()

    def __enter__(self) -> "Mortal":
        self._originals = {name: getattr(os, name) for name in (*WRITES, "close")}
        for name in WRITES:
            setattr(os, name, self._mortal(name, self._originals[name]))
        os.close = self._close  # type: ignore[assignment]
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> bool:
        for name, function in self._originals.items():
            setattr(os, name, function)
        for descriptor in self._held:
            with contextlib.suppress(OSError):
                os.close(descriptor)
        return kind is Death

    def _mortal(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **keywords: Any) -> Any:
            if self.is_dead:
                raise Death
            writes = name != "open" or arguments[1] & (os.O_WRONLY | os.O_RDWR)
            if writes:
                self._count(name, function, arguments)
            result = function(*arguments, **keywords)
            if name == "open" and writes:
                self._held.add(result)
            return result

        return call

    def _count(self, name: str, function: Callable[..., Any], arguments: tuple) -> None:
        self.writes += name in self._counted
        if self.writes != self._at or name not in self._counted:
            return
        if self._torn and name in ("write", "pwrite"):
            function(arguments[0], bytes(arguments[1])[: len(arguments[1]) // 2], *arguments[2:])
        if self._real:
            os.kill(os.getpid(), signal.SIGKILL)
        self.is_dead = True
        raise Death

    def _close(self, descriptor: int) -> None:
        self._held.discard(descriptor)
        self._originals["close"](descriptor)
