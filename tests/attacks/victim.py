"""A canary command in a process that dies at its N-th write: `python -m attacks.victim N COMMAND ...` (0: it lives).

Writes are what changes the disk: a file that is flushed, put in its place, or removed. Nothing is cleaned up.
"""

import os
import signal
import sys
from collections.abc import Callable
from typing import Any


def die_at(number: int) -> None:
    left = [number]

    def counted(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **keywords: Any) -> Any:
            left[0] -= 1
            if left[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return function(*arguments, **keywords)

        return call

    for name in ("fsync", "replace", "unlink"):
        setattr(os, name, counted(getattr(os, name)))


if __name__ == "__main__":
    if int(sys.argv[1]):
        die_at(int(sys.argv[1]))
    from canary.cli.main import main

    sys.exit(main(sys.argv[2:]))
