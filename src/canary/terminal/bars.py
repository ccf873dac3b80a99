"""Bars on standard error for work that is counted: episodes, points, units."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from canary.terminal.console import error_console

Count = Callable[[int, int, str], None]
"""Called with (done, total, what is being done)."""


@contextmanager
def counting_bar(label: str, *, quiet: bool = False) -> Iterator[Count]:
    """A bar; yields the function that updates it."""
    console = error_console()
    is_off = quiet or not console.is_interactive
    description, columns = TextColumn("{task.description}"), (BarColumn(), MofNCompleteColumn())
    parts = (description, *columns, TimeRemainingColumn())
    with Progress(*parts, console=console, transient=True, disable=is_off) as bar:
        task = bar.add_task(label, total=None)
        yield lambda done, total, what: bar.update(
            task, completed=done, total=total, description=what
        )


@contextmanager
def evaluation_bar(
    episodes: int, *, quiet: bool = False
) -> Iterator[tuple[Callable[[int, int], None], Count]]:
    """A bar for so many episodes in all; yields a function of (seed, episodes since the last call),
    and for the work after it a function of `counting_bar`."""
    played = 0
    with counting_bar("compiling", quiet=quiet) as show:

        def report(seed: int, count: int) -> None:
            nonlocal played
            played += count
            show(played, episodes, f"seed {seed}")

        yield report, show
