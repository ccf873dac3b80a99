"""How a command ends that cannot go on: in one sentence on standard error, whatever happened.

2    a mistake of the caller, which the sentence explains
70   a mistake of canary's: the sentence says where the traceback is kept (CANARY_TRACEBACK=1 shows it)
130  Ctrl-C
"""

import contextlib
import errno
import os
import sys
import tempfile
import traceback
from collections.abc import Callable

from canary.errors import CanaryError
from canary.terminal.console import printable

MISTAKE, BUG, INTERRUPTED = 2, 70, 130
UNWRITABLE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


def guarded(command: Callable[[], int]) -> int:
    """Run a command; returns its exit code. No exception leaves this function."""
    with contextlib.suppress(AttributeError, ValueError, OSError):
        for stream in (
            sys.stdout,
            sys.stderr,
        ):  # a terminal that knows no Greek gets question marks
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    try:
        code = command()
        sys.stdout.flush()
        return code
    except CanaryError as error:
        return say(str(error), MISTAKE)
    except KeyboardInterrupt:
        return say("Interrupted.", INTERRUPTED)
    except (
        BrokenPipeError
    ):  # the reader of standard output has gone; Python must not try to flush it again
        _forget_output()
        return 1
    except BaseException as error:  # a panic of a library is no Exception
        if isinstance(error, SystemExit | GeneratorExit):
            raise
        if isinstance(error, OSError) and error.errno in UNWRITABLE and error.filename is None:
            _forget_output()
            return say(f"Standard output cannot be written ({error.strerror}).", MISTAKE)
        return _unforeseen(error)


def say(text: str, code: int) -> int:
    """One sentence on standard error, on one line; of one that quotes a novel, the beginning and
    the end."""
    text = " ".join(text.split())
    text = text if len(text) <= 1200 else f"{text[:800]} ... {text[-300:]}"
    with contextlib.suppress(OSError, ValueError):
        print(printable(text), file=sys.stderr)
    return code


def _unforeseen(error: BaseException) -> int:
    """Keep the traceback where it can be sent from, and say so."""
    report = "".join(traceback.format_exception(error))
    if os.environ.get("CANARY_TRACEBACK") == "1":
        sys.stderr.write(report)
    reason = f"{type(error).__name__}: {error}".partition("\n")[0][:200]
    place = "is lost, for no file could be written"
    with contextlib.suppress(OSError):
        descriptor, name = tempfile.mkstemp(prefix="canary-traceback-", suffix=".txt")
        with os.fdopen(descriptor, "w", errors="backslashreplace") as file:
            file.write(f"{sys.version}\n{sys.argv!r}\n\n{report}")
        place = f"is in {name}"
    return say(
        f"canary failed in a way that nobody foresaw ({reason}); the traceback {place}: please "
        "report it with the command. CANARY_TRACEBACK=1 shows it here.",
        BUG,
    )


def _forget_output() -> None:
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
