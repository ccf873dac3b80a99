"""The `canary` command: parse into a dataclass, call one function, and turn mistakes into a
sentence.

Exit codes: 0 done; 2 a mistake of the caller, explained by one sentence on standard error; 70 a
mistake of canary's (`failures`); 130 interrupted by Ctrl-C. A new command is a file here and a line
in `COMMANDS`.
"""

import contextlib
import io
import re
import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import fields
from difflib import get_close_matches
from typing import Any

import tyro

from canary.cli import (
    bench,
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
from canary.cli.failures import guarded
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
    "bench": (bench.Bench, bench.bench),
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


def parse(name: str, kind: type, arguments: list[str]) -> Any:
    """The options of a command; tyro's own report of a mistake becomes one sentence."""
    report = io.StringIO()
    try:
        with contextlib.redirect_stderr(report):
            options, unknown = tyro.cli(
                kind, prog=f"canary {name}", args=arguments, return_unknown_args=True, config=STYLE
            )
    except SystemExit:
        raise CanaryError(f"{_reason(report.getvalue())}; see `canary {name} --help`.") from None
    if unknown:
        flags = [f"--{field.name.replace('_', '-')}" for field in fields(kind)]
        near = get_close_matches(unknown[0].partition("=")[0], flags, n=1)
        hint = f"did you mean {near[0]}?" if near else f"see `canary {name} --help`."
        raise CanaryError(f"canary {name} does not know {unknown[0]!r}; {hint}")
    return options


def _reason(box: str) -> str:
    """What tyro complains about, out of the box that it draws."""
    lines = [re.sub(r"\x1b\[[0-9;]*m|[│╭╮╰╯─]", "", line).strip() for line in box.splitlines()[1:]]
    text = next(filter(None, lines), "The options cannot be read")
    missing = re.search(r"Missing value for argument '([^']+)'", text)
    return f"{missing[1]} needs a value" if missing else text.rstrip(".:")


def _show_warning(message: Any, category: type, *_: Any) -> None:
    print(printable(f"Warning: {message}"), file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
