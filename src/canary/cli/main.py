"""The `canary` command: find the command, read its options, call it.

Exit codes: 0 success; 2 a mistake of the caller, explained in a sentence on standard error; 70 a
bug in canary, with its traceback; 130 Ctrl-C.
"""

import contextlib
import os
import sys
import traceback
import warnings
from collections.abc import Sequence
from typing import Any

from canary.cli.options import parse, print_help
from canary.cli.policies import Certify, Evaluate, Export
from canary.cli.show import CheckEnv, Compare, Frontier, List, Report
from canary.cli.studies import Reproduce, Sweep
from canary.cli.train import Train
from canary.errors import CanaryError, nearest
from canary.terminal.console import check_json

COMMANDS: dict[str, Any] = {
    "train": Train,
    "evaluate": Evaluate,
    "certify": Certify,
    "compare": Compare,
    "frontier": Frontier,
    "check-env": CheckEnv,
    "reproduce": Reproduce,
    "sweep": Sweep,
    "report": Report,
    "export": Export,
    "list": List,
}

HELP = """usage: canary COMMAND [options]

Reinforcement learning under a hard tail-risk limit: P(episode cost > limit) <= epsilon.

commands:
{commands}

examples:
  canary train               train Canary on IcyLake and watch it
  canary evaluate            measure the policies of the newest run on fresh episodes
  canary train --help        show all options of a command
  canary --version           show the version"""

MISTAKE, BUG, INTERRUPTED = 2, 70, 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code."""
    warnings.showwarning = _show_warning  # type: ignore[assignment]
    with contextlib.suppress(AttributeError, ValueError, OSError):
        for stream in (sys.stdout, sys.stderr):  # escape letters that the terminal lacks
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    try:
        command = find_command(list(sys.argv[1:] if arguments is None else arguments))
        code = 0 if command is None else command()
        sys.stdout.flush()
        return code
    except CanaryError as error:
        return say(str(error), MISTAKE)
    except KeyboardInterrupt:
        return say("Interrupted.", INTERRUPTED)
    except BrokenPipeError:  # the reader closed: keep Python from flushing again
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except SystemExit:
        raise
    except BaseException as error:  # polars panics with a BaseException
        if isinstance(error, ModuleNotFoundError) and error.name in ("matplotlib", "PIL"):
            text = "Figures and videos need the extra plot: pip install 'canary-rl[plot]'."
            return say(text, MISTAKE)
        traceback.print_exc()
        return say("canary failed unexpectedly: please report the lines above.", BUG)


def find_command(arguments: list[str]) -> Any:
    """The command with its options; None after printing help or the version."""
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        lines = (f"  {name:<10} {kind.__doc__}" for name, kind in COMMANDS.items())
        print(HELP.format(commands="\n".join(lines)))
        return None
    if arguments[0] == "--version":
        from canary import __version__

        print(f"canary {__version__}")
        return None
    name, *words = arguments
    if name not in COMMANDS:
        raise CanaryError(f"There is no command {name!r}{nearest(name, COMMANDS)}")
    if "-h" in words or "--help" in words:
        print_help(name, COMMANDS[name])
        return None
    command = parse(name, COMMANDS[name], words)
    check_json(getattr(command, "json", None))
    return command


def say(text: str, code: int) -> int:
    """Print one line on standard error."""
    print(" ".join(text.split()), file=sys.stderr)
    return code


def _show_warning(message: Any, category: type, *_: Any) -> None:
    print(f"Warning: {message}", file=sys.stderr)
