"""What several commands share: option types, lists of seeds, whole numbers."""

import re
import sys
from pathlib import Path
from typing import Annotated, Any, overload

from tyro.conf import Positional, arg

from canary.errors import CanaryError
from canary.values import MOST_SEEDS, Range, convert

Json = Annotated[str | None, arg(metavar="FILE|-", help_behavior_hint="")]
Switch = Annotated[bool, arg(help_behavior_hint="")]


def flag(metavar: str, default: str = "", about: str | None = None) -> Any:
    """How help shows an option; what it is about stands here or, as a text, below its field."""
    return arg(
        metavar=metavar, help=about, help_behavior_hint=f"(default: {default})" if default else ""
    )


# Options that several commands have.
OneRun = Annotated[
    Positional[str], flag("RUN", "latest", "The run: its path, its name below --out, or latest.")
]
RunsFolder = Annotated[str, flag("DIR", "runs", "Directory that holds the runs.")]
SomeSeeds = Annotated[
    str | None,
    flag("N|LIST", "all", "Which seeds of the run: the first N, or a list such as 3,5,7 or 0-9."),
]
TRUST = "Import the code that the run was trained on, if it is not canary's own; asked once for each run."
CHANGE = "Go on although the environment is not as it was in training; a certificate says what is different."
Trust = Annotated[bool, arg(help=TRUST, help_behavior_hint="")]
AcceptChange = Annotated[bool, arg(help=CHANGE, help_behavior_hint="")]


def opened(name: str, out: str, *, trust: bool) -> Path:
    """The run of that name, once the user agreed to import the code that it names, if it names
    any."""
    from canary.runs import directory
    from canary.runs.environment import agree

    run = directory.find_run(name, Path(out))
    agree(run, trust=trust, ask=_ask if sys.stdin.isatty() and sys.stderr.isatty() else None)
    return run


def _ask(question: str) -> bool:
    sys.stderr.write(f"{question} [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def parse_seeds(text: str) -> int | tuple[int, ...]:
    """`4` is a number of seeds; `3,5,7`, `0-9` and `0-3,7` name them."""
    if re.fullmatch(r"[0-9]{1,9}", text) and int(text) <= MOST_SEEDS:
        return int(text)
    seeds: list[int] = []
    for part in text.rstrip(",").split(","):
        match = re.fullmatch(r"\s*([0-9]{1,12})(?:-([0-9]{1,12}))?\s*", part)
        if match is None or text.isdecimal():
            raise CanaryError(
                f"--seeds takes a number up to {MOST_SEEDS} or a list such as 3,5,7 or 0-9, not "
                f"{text!r}."
            )
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first or last - first >= MOST_SEEDS:
            raise CanaryError(
                f"--seeds {part} is no range of up to {MOST_SEEDS} seeds; write 0-9, for example."
            )
        seeds.extend(range(first, last + 1))
    return tuple(seeds)


def number(name: str, text: str | None) -> float | None:
    """The number that an option gives, if it is given."""
    return convert(float | None, text, name)


def said_constraint(kind: str | None, limit: str | None, epsilon: str | None) -> dict[str, Any]:
    """What --constraint, --limit and --epsilon say; several costs have a list with commas."""

    def numbers(name: str, text: str | None) -> Any:
        parts = text.split(",") if text else [text]
        found = tuple(number(name, part) for part in parts)
        return found if len(found) > 1 else found[0]

    kinds = kind.split(",") if kind else [kind]
    return {
        "kind": tuple(kinds) if len(kinds) > 1 else kind,
        "limit": numbers("--limit", limit),
        "epsilon": numbers("--epsilon", epsilon),
    }


@overload
def whole(name: str, text: str) -> int: ...
@overload
def whole(name: str, text: str | None) -> int | None: ...
def whole(name: str, text: str | None) -> int | None:
    """The whole number that an option gives, if it is given; 12M and 600k are some."""
    return convert(Annotated[int, Range(0, 10**12)] | None, text, name)


def chosen_seeds(text: str | None, known: tuple[int, ...]) -> tuple[int, ...] | None:
    """The seeds of a run that `--seeds` names; None if it was not said. More than there are is a
    mistake."""
    if text is None:
        return None
    chosen = parse_seeds(text)
    if isinstance(chosen, tuple):
        return chosen
    if not 1 <= chosen <= len(known):
        raise CanaryError(
            f"--seeds {chosen}: the run has {len(known)} seeds; take 1 to {len(known)} of them, or "
            "name some."
        )
    return known[:chosen]
