"""Output of a command: tables and sentences go to a console, bars to standard error, JSON to
`--json FILE|-`."""

import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from canary.runs import files


class PlainConsole(Console):
    """rich's console without markup, so that square brackets are printed."""

    def __init__(self, **settings: Any):
        super().__init__(markup=False, highlight=False, emoji=False, **settings)

    def say(self, *parts: str | Text | tuple[str, str]) -> None:
        """One line, however long; a part may be (text, style)."""
        self.print(Text.assemble(*parts), soft_wrap=True)


def error_console() -> PlainConsole:
    """A console on standard error; FORCE_COLOR must not animate a log."""
    return PlainConsole(stderr=True, force_interactive=None if sys.stderr.isatty() else False)


def console_for(target: str | None) -> PlainConsole:
    """A console on standard output, or on standard error if JSON goes to standard output."""
    console = PlainConsole(stderr=target == "-")
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = 120  # a file has no width
    return console


def check_json(target: str | None) -> None:
    """Raise if the JSON cannot be written, before any work is done."""
    if target is not None and target != "-":
        files.check_target(Path(target))
        files.check_writable(Path(target).parent)


def emit_json(target: str | None, value: Mapping[str, Any]) -> None:
    text = json.dumps(value, indent=2, allow_nan=False) + "\n"
    if target == "-":
        sys.stdout.write(text)
        sys.stdout.flush()
    elif target is not None:
        files.write_atomically(Path(target), text.encode())


Count = Callable[[int, int, str], None]
"""Called with (done, total, what is done)."""


@contextmanager
def counting_bar(label: str, *, quiet: bool = False) -> Iterator[Count]:
    """A bar; yields the function that updates it."""
    from rich import progress

    console = error_console()
    is_off = quiet or not console.is_interactive
    text, count = progress.TextColumn("{task.description}"), progress.MofNCompleteColumn()
    parts = text, progress.BarColumn(), count, progress.TimeRemainingColumn()
    with progress.Progress(*parts, console=console, transient=True, disable=is_off) as bar:
        task = bar.add_task(label, total=None)
        yield lambda done, total, what: bar.update(
            task, completed=done, total=total, description=what
        )


@contextmanager
def evaluation_bar(
    episodes: int, *, quiet: bool = False
) -> Iterator[tuple[Callable[[int, int], None], Count]]:
    """A bar for a total number of episodes. Yields a function of (seed, episodes since the last
    call), and for later work a function as in `counting_bar`."""
    played = 0
    with counting_bar("compiling", quiet=quiet) as show:

        def report(seed: int, count: int) -> None:
            nonlocal played
            played += count
            show(played, episodes, f"seed {seed}")

        yield report, show
