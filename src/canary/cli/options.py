"""Options of commands. A command is a dataclass: a field's type is the type of the option, the text
below it is its help, and calling the command runs it.

tyro splits the words. `canary.values` converts numbers and choices, so a wrong one gives the same
message as in Python.
"""

import contextlib
import inspect
import io
from collections.abc import Callable, Iterable
from dataclasses import fields, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any

import tyro
from tyro.conf import Positional, UseAppendAction, arg
from tyro.constructors import ConstructorRegistry, PrimitiveConstructorSpec, PrimitiveTypeInfo

from canary.errors import CanaryError
from canary.terminal.console import console_for, emit_json
from canary.values import Kind, Seeds, Whole, convert, type_hints


def flag(metavar: str | None = None, default: str = "", about: str | None = None) -> Any:
    """How help shows an option. Its description is `about` or the text below its field."""
    hint = f"(default: {default})" if default else ""
    return arg(metavar=metavar, help=about, help_behavior_hint=hint)


# Options that several commands have, and what help says about them
RUN = "The run: its path, its name below --out, or latest."
SEEDS = "Which seeds of the run: the first N, or a list such as 3,5,7 or 0-9."
STEP = "Use the policies after this many steps per seed, if the run kept them."
TRUST = "Import the code that the run names without asking. Otherwise canary asks once per run."
ACCEPT = "Continue although the environment has changed; the result states the difference."
JSON = "Write the result as JSON to a file, or to standard output (-)."
OWN = "the environment's own"
COST = """Where the cost of another package's environment is: info:KEY, safety-gymnasium, or
package.module:function."""
KIND = """What is limited: P(cost > limit), the mean cost, or the mean cost of the worst share
epsilon of the episodes. For several costs, --constraint, --limit and --epsilon take lists:
chance,mean."""
LIMIT = """Limit on the cost of an episode (chance), the mean cost (mean), or the mean cost of the
worst episodes (cvar)."""
EPSILON = """Largest allowed probability of a violation (chance), or the share of episodes that
count as the worst (cvar)."""

Switch = Annotated[bool, flag()]
Repeated = Annotated[tuple[str, ...], UseAppendAction]
Quiet = Annotated[bool, flag(about="Print no progress and no table.")]
Json = Annotated[str | None, flag("FILE|-", about=JSON)]
OneRun = Annotated[Positional[str], flag("RUN", "latest", RUN)]
RunsFolder = Annotated[str, flag("DIR", "runs", "Directory that holds the runs.")]
ResultsFolder = Annotated[str, flag("DIR", "results", "Directory that holds results of studies.")]
ChosenSeeds = Annotated[Seeds | None, flag("N|LIST", "all", SEEDS)]
Step = Annotated[Whole | None, flag("STEP", "the newest", STEP)]
Trust = Annotated[bool, flag(about=TRUST)]
AcceptChange = Annotated[bool, flag(about=ACCEPT)]
Cost = Annotated[str | None, flag("WHERE", about=COST)]
Constraint = Annotated[
    Kind | tuple[Kind, ...] | None, flag("chance|mean|cvar", f"{OWN}, or chance", KIND)
]
Limit = Annotated[float | tuple[float, ...] | None, flag("COST", OWN, LIMIT)]
Epsilon = Annotated[float | tuple[float, ...] | None, flag("PROBABILITY", OWN, EPSILON)]

STYLE = (tyro.conf.FlagCreatePairsOff, tyro.conf.OmitArgPrefixes)
READ_BY_TYRO = (bool, type(None), tuple[str, ...], tuple[str, ...] | None)
registry = ConstructorRegistry()


@registry.primitive_rule
def _as_text(info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec[Any] | None:
    if info.type in READ_BY_TYRO:
        return None
    return PrimitiveConstructorSpec(
        nargs=1,
        metavar="TEXT",
        instance_from_str=lambda words: words[0],
        is_instance=lambda value: True,
        str_from_instance=lambda value: [str(value)],
    )


def parse(name: str, kind: Any, words: list[str]) -> Any:
    """The command with its options, or a sentence."""
    try:
        with contextlib.redirect_stderr(io.StringIO()):
            command, unknown = tyro.cli(
                kind, args=words, return_unknown_args=True, config=STYLE, registry=registry
            )
    except SystemExit:
        raise CanaryError(
            f"An option needs a value, or an argument is missing; see `canary {name} --help`."
        ) from None
    hints = type_hints(kind)
    if unknown:
        word = unknown[0].partition("=")[0].strip("-")
        names = [flag_of(field)[2:] for field, hint in hints.items() if not _is_positional(hint)]
        # `--steps` means `--total-steps` rather than `--seeds`, which resembles it
        near = [each for each in names if word in each] or get_close_matches(word, names)
        advice = f"did you mean --{near[0]}?" if near else f"see `canary {name} --help`."
        raise CanaryError(f"canary {name} does not know {unknown[0]!r}; {advice}")
    values = {
        field: convert(hint, getattr(command, field), flag_of(field))
        for field, hint in hints.items()
    }
    return replace(command, **values)


def _is_positional(hint: Any) -> bool:
    (marker,) = Positional[str].__metadata__
    return marker in getattr(hint, "__metadata__", ())


def print_help(name: str, kind: Any) -> None:
    with contextlib.suppress(SystemExit):
        tyro.cli(kind, prog=f"canary {name}", args=["--help"], config=STYLE, registry=registry)
    print(f"examples:{kind.EXAMPLES}")


def flag_of(field: str) -> str:
    return "--from" if field == "start" else f"--{field.replace('_', '-')}"


def given(command: Any) -> dict[str, Any]:
    """The options that differ from their defaults, by field."""
    values = ((field, getattr(command, field.name)) for field in fields(command))
    return {field.name: value for field, value in values if value != field.default}


def refuse(command: Any, names: Iterable[str], why: str) -> None:
    """Raise for the first of these options that was given."""
    for name in names:
        if name in given(command):
            raise CanaryError(f"Leave out {flag_of(name)}: {why}.")


def arguments(command: Any, function: Callable[..., Any]) -> dict[str, Any]:
    """The options that a function of a run takes under the same names."""
    names = inspect.signature(function).parameters.keys() - {"run"}
    return {name: value for name, value in vars(command).items() if name in names}


def show(command: Any, result: Any, print_: Callable[..., None], *more: Any, **paths: Any) -> None:
    """Print a result for people and where its files are, unless they want quiet; write its JSON."""
    if not command.quiet:
        console = console_for(command.json)
        print_(console, result, *more)
        for label, path in paths.items():
            console.say(f"{label:<12}{path}")
    emit_json(command.json, result)


def opened(name: str, out: str, *, trust: bool) -> Path:
    """The run of that name, after the user agreed to import the code that it names."""
    from canary.runs.directory import find_run
    from canary.runs.environment import agree

    run = find_run(name, Path(out))
    agree(run, trust=trust)
    return run
