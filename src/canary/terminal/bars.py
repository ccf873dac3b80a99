"""Bars on standard error for work that is counted: episodes, points, units."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from canary.terminal.console import error_console


@contextmanager
def counting_bar(label: str, *, quiet: bool = False) -> Iterator[Callable[[int, int, str], None]]:
    """A bar on standard error; yields what to call with (done, total, what is being done)."""
    if quiet:
        yield lambda done, total, what: None
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    console = error_console()
    with Progress(
        *columns, console=console, transient=True, disable=not console.is_interactive
    ) as bar:
        task = bar.add_task(label, total=None)
        yield lambda done, total, what: bar.update(
            task, completed=done, total=total, description=what
        )


@contextmanager
def evaluation_bar(
    episodes: int, *, quiet: bool = False
) -> Iterator[tuple[Callable[[int, int], None], Callable[[int, int, str], None]]]:
    """A bar for `episodes` in all; yields what to call with (seed, episodes played since the last
    call).

    And, for work that follows, what `counting_bar` yields.
    """
    played = 0
    with counting_bar("compiling", quiet=quiet) as show:

        def report(seed: int, count: int) -> None:
            nonlocal played
            played += count
            show(played, episodes, f"seed {seed}")

        yield report, show
