"""The `canary` command: parse into a dataclass, call one function, and end in one sentence on
standard error if that cannot be done.

Exit codes: 0 done; 2 a mistake of the caller, which the sentence explains; 70 a mistake of
canary's: the sentence says where the traceback is kept (CANARY_TRACEBACK=1 shows it); 130 Ctrl-C. A
new command is a file here and a line in `COMMANDS`.
"""

import contextlib
import errno
import io
import os
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable, Sequence
from dataclasses import fields
from difflib import get_close_matches
from typing import Any

import tyro

from canary.cli import (
    certify,
    check_env,
    compare,
    evaluate,
    export,
    frontier,
    listing,
    report,
    reproduce,
    sweep,
    train,
)
from canary.errors import CanaryError, nearest
from canary.terminal.console import printable

COMMANDS: dict[str, tuple[type, Callable[[Any], int]]] = {
    "train": (train.Train, train.train),
    "evaluate": (evaluate.Evaluate, evaluate.evaluate),
    "certify": (certify.Certify, certify.certify),
    "compare": (compare.Compare, compare.compare),
    "frontier": (frontier.Frontier, frontier.frontier),
    "check-env": (check_env.CheckEnv, check_env.check),
    "reproduce": (reproduce.Reproduce, reproduce.reproduce),
    "sweep": (sweep.Sweep, sweep.sweep),
    "report": (report.Report, report.report),
    "export": (export.Export, export.export),
    "list": (listing.List, listing.show),
}

HELP = """usage: canary COMMAND [options]

Reinforcement learning under a hard tail-risk limit: P(episode cost > limit) <= epsilon.

commands:
{commands}

examples:
  canary train               train Canary on IcyLake and watch it
  canary evaluate            measure the policies of the newest run on fresh episodes
  canary train --help        all options of a command
  canary --version           the version"""

MISTAKE, BUG, INTERRUPTED = 2, 70, 130
UNWRITABLE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)

STYLE = (tyro.conf.FlagCreatePairsOff, tyro.conf.OmitArgPrefixes)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    warnings.showwarning = _show_warning  # type: ignore[assignment]
    return guarded(lambda: _run(arguments))


def _run(arguments: list[str]) -> int:
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        lines = (f"  {name:<10} {kind.__doc__}" for name, (kind, _) in COMMANDS.items())
        print(HELP.format(commands="\n".join(lines)))
        return 0
    if arguments[0] == "--version":
        from canary import __version__

        print(f"canary {__version__}")
        return 0
    name, *rest = arguments
    if name not in COMMANDS:
        raise CanaryError(f"There is no command {name!r}{nearest(name, COMMANDS)}")
    kind, function = COMMANDS[name]
    if "-h" in rest or "--help" in rest:
        print_help(name, kind)
        return 0
    return function(parse(name, kind, rest))


def print_help(name: str, kind: Any) -> None:
    with contextlib.suppress(SystemExit):
        tyro.cli(kind, prog=f"canary {name}", args=["--help"], config=STYLE)
    print(f"examples:{kind.EXAMPLES}")


def parse(name: str, kind: Any, arguments: list[str]) -> Any:
    """The options of a command, or a sentence."""
    flags = {_flag(field): field.default for field in fields(kind)}
    try:
        with contextlib.redirect_stderr(io.StringIO()):
            options, unknown = tyro.cli(
                kind, prog=f"canary {name}", args=arguments, return_unknown_args=True, config=STYLE
            )
    except SystemExit:
        bare = [
            f"{word} needs a value"
            for word, following in zip(arguments, [*arguments[1:], "--"], strict=False)
            if following.startswith("--") and not isinstance(flags.get(word, False), bool)
        ]
        problem = (bare or ["An argument is missing, or has a value that it cannot have"])[0]
        raise CanaryError(f"{problem}; see `canary {name} --help`.") from None
    if unknown:
        near = get_close_matches(unknown[0].partition("=")[0], flags, n=1)
        hint = f"did you mean {near[0]}?" if near else f"see `canary {name} --help`."
        raise CanaryError(f"canary {name} does not know {unknown[0]!r}; {hint}")
    return options


def _flag(field: Any) -> str:
    return "--from" if field.name == "start" else f"--{field.name.replace('_', '-')}"


def _show_warning(message: Any, category: type, *_: Any) -> None:
    print(printable(f"Warning: {message}"), file=sys.stderr)


def guarded(command: Callable[[], int]) -> int:
    """Run a command; returns its exit code. No exception leaves this function."""
    with contextlib.suppress(AttributeError, ValueError, OSError):
        for stream in (sys.stdout, sys.stderr):  # a terminal that knows no Greek gets codes
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    try:
        code = command()
        sys.stdout.flush()
        return code
    except CanaryError as error:
        return say(str(error), MISTAKE)
    except KeyboardInterrupt:
        return say("Interrupted.", INTERRUPTED)
    except BrokenPipeError:  # the reader has gone; Python must not try to flush it again
        _forget_output()
        return 1
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("matplotlib", "PIL"):
            return _unforeseen(error)
        return say(
            "Figures and videos need the extra plot: pip install 'canary-rl[plot]'.", MISTAKE
        )
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


if __name__ == "__main__":
    sys.exit(main())
