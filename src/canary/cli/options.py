"""Options of commands. A command is a dataclass: a field is an option, the text below it is its
help, and calling the command runs it. Base classes hold the options that several commands share.

tyro splits the words. `canary.values` converts numbers and choices, so mistakes give the same
messages as in Python.
"""

import contextlib
import inspect
import io
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, fields, make_dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import tyro
from tyro.conf import Positional, UseAppendAction, arg
from tyro.constructors import ConstructorRegistry, PrimitiveConstructorSpec, PrimitiveTypeInfo

from canary.config.settings import texts_of
from canary.errors import CanaryError
from canary.terminal.console import console_for, emit_json
from canary.values import Kind, Seeds, Whole, convert, type_hints

if TYPE_CHECKING:
    from canary.api import Run


def flag(metavar: str | None = None, default: str = "", about: str | None = None) -> Any:
    """The form of an option in help. Its description is `about`, or else the text below its field."""
    hint = f"(default: {default})" if default else ""
    about = about and " ".join(about.split())
    return arg(metavar=metavar, help=about, help_behavior_hint=hint)


COST = """Where the cost of another package's environment is: info:KEY, safety-gymnasium, or
package.module:function."""
OWN = "the environment's own"
Switch = Annotated[bool, flag()]
Repeated = Annotated[tuple[str, ...], UseAppendAction]
Trust = Annotated[
    bool,
    flag(about="Import the code that a run from elsewhere names. Needed once per run."),
]
RunsFolder = Annotated[str, flag("DIR", "runs", "Directory that holds the runs.")]
Cost = Annotated[str | None, flag("WHERE", about=COST)]
ResultsFolder = Annotated[str, flag("DIR", "results", "Directory that holds results of studies.")]


@dataclass(frozen=True, kw_only=True)
class Output:
    """Options of commands that show a result."""

    json: Annotated[str | None, flag("FILE|-")] = None
    """Write the result as JSON to a file, or to standard output (-)."""
    quiet: Switch = False
    """Print no progress and no table."""

    def show(self, result: Any, print_: Callable[..., None], *more: Any, **paths: Any) -> None:
        """Print a result and the paths of its files, unless `quiet`; write its JSON."""
        if not self.quiet:
            console = console_for(self.json)
            print_(console, result, *more)
            for label, path in paths.items():
                console.say(f"{label:<12}{path}")
        emit_json(self.json, result)


@dataclass(frozen=True, kw_only=True)
class OfRun(Output):
    """Options of commands about a run."""

    run: Annotated[Positional[str], flag("RUN", "latest")] = ""
    """The run: its path, its name below --out, or latest."""
    step: Annotated[Whole | None, flag("STEP", "the newest")] = None
    """Use the policies after this many steps per seed, if the run kept them."""
    trust: Trust = False
    out: RunsFolder = "runs"

    def opened(self) -> Path:
        return opened(self.run or "latest", self.out, trust=self.trust)


@dataclass(frozen=True, kw_only=True)
class OfPolicies(OfRun):
    """Options of commands that play the policies of a run."""

    seeds: Annotated[Seeds | None, flag("N|LIST", "all")] = None
    """Seeds of the run: the first N, or a list such as 3,5,7 or 0-9."""
    deterministic: Switch = False
    """Take the most likely action instead of sampling, as training does."""
    accept_change: Switch = False
    """Continue although the environment has changed; the result states the difference."""

    def load(self) -> "Run":
        from canary import api

        return api.load(self.opened(), accept_change=self.accept_change)


@dataclass(frozen=True, kw_only=True)
class Limits(Output):
    """Options about the constraint on an environment."""

    cost: Cost = None
    constraint: Annotated[
        Kind | tuple[Kind, ...] | None, flag("chance|mean|cvar", f"{OWN}, or chance")
    ] = None
    """What is limited: P(cost > limit), the mean cost, or the mean cost of the worst share epsilon of
    the episodes. For several costs, --constraint, --limit and --epsilon take lists: chance,mean."""
    limit: Annotated[float | tuple[float, ...] | None, flag("COST", OWN)] = None
    """Limit on the cost of an episode (chance), the mean cost (mean), or the mean cost of the worst
    episodes (cvar)."""
    epsilon: Annotated[float | tuple[float, ...] | None, flag("PROBABILITY", OWN)] = None
    """Largest allowed probability of a violation (chance), or the share of episodes that count as the
    worst (cvar)."""

    @property
    def limits(self) -> dict[str, Any]:
        """The given choices about the constraint."""
        return {"kind": self.constraint, "limit": self.limit, "epsilon": self.epsilon}


def opened(name: str, out: str, *, trust: bool) -> Path:
    """The run of that name, if the user trusts the code that it names."""
    from canary.runs.directory import find_run
    from canary.runs.environment import agree

    run = find_run(name, Path(out))
    agree(run, trust=trust)
    return run


# Reading and help

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
    """The command with its options, or a `CanaryError`."""
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
        names = [flag_of(field)[2:] for field in hints]
        # `--steps` means `--total-steps`, although `--seeds` is more similar
        near = [each for each in names if word in each] or get_close_matches(word, names)
        advice = f"did you mean --{near[0]}?" if near else f"see `canary {name} --help`."
        raise CanaryError(f"canary {name} does not know {unknown[0]!r}; {advice}")
    values = {
        field: convert(hint, getattr(command, field), flag_of(field))
        for field, hint in hints.items()
    }
    return replace(command, **values)


def print_help(name: str, kind: Any) -> None:
    """Print options and examples. A command's own options come first, then those of its base
    classes. Texts are joined to one line, because tyro keeps the line breaks of the source."""
    texts, hints = texts_of(kind), get_type_hints(kind, include_extras=True)

    def depth(option: Any) -> int:
        owners = (vars(base).get("__annotations__", {}) for base in kind.__mro__)
        return next(index for index, owned in enumerate(owners) if option.name in owned)

    options = [
        (
            each.name,
            Annotated[hints[each.name], arg(help=texts.get(each.name))],
            field(default=each.default),
        )
        for each in sorted(fields(kind), key=depth)
    ]
    shown = make_dataclass(name, options, kw_only=True)
    shown.__doc__ = kind.__doc__
    with contextlib.suppress(SystemExit):
        tyro.cli(shown, prog=f"canary {name}", args=["--help"], config=STYLE, registry=registry)
    print(f"examples:{kind.EXAMPLES}")


def flag_of(field: str) -> str:
    return "--from" if field == "start" else f"--{field.replace('_', '-')}"


def given(command: Any) -> dict[str, Any]:
    """The options that differ from their defaults, by field."""
    values = ((field, getattr(command, field.name)) for field in fields(command))
    return {field.name: value for field, value in values if value != field.default}


def refuse(command: Any, names: Iterable[str], why: str) -> None:
    """Raise if one of these options was given."""
    for name in names:
        if name in given(command):
            raise CanaryError(f"Leave out {flag_of(name)}: {why}.")


def arguments(command: Any, function: Callable[..., Any]) -> dict[str, Any]:
    """The options that are also parameters of the function."""
    names = inspect.signature(function).parameters.keys() - {"run"}
    return {name: value for name, value in vars(command).items() if name in names}
