"""Death of a command inside a process that lives on: it gets a `Death` from its N-th rename, removal
or new directory, and from every change of the disk after it, so that no `finally` can tidy up. The
files that it held open are closed afterwards, as the kernel would do.
"""

import contextlib
import os
from collections.abc import Callable
from typing import Any

CHANGES = ("replace", "rename", "unlink", "mkdir", "rmdir")


class Death(BaseException):
    """What a command gets instead of a SIGKILL."""


class Mortal:
    """A context in which the change `at` does not happen, nor anything after it."""

    def __init__(self, at: int):
        self._left = at
        self._originals: dict[str, Callable[..., Any]] = {}
        self._held: set[int] = set()

    @property
    def is_dead(self) -> bool:
        return self._left <= 0

    def __enter__(self) -> "Mortal":
        self._originals = {name: getattr(os, name) for name in (*CHANGES, "open", "close")}
        for name, function in self._originals.items():
            setattr(os, name, self._mortal(name, function))
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
            self._left -= name in CHANGES
            if self.is_dead and name != "close":
                raise Death
            if name == "close":
                self._held.discard(arguments[0])
            result = function(*arguments, **keywords)
            if name == "open":
                self._held.add(result)
            return result

        return call
