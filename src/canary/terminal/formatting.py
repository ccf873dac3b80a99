"""Numbers and tables as people read them on a terminal."""

import math
from collections.abc import Iterable, Sequence

from rich import box
from rich.table import Table
from rich.text import Text

Cell = str | Text


def table(
    *columns: str, rows: Iterable[Sequence[Cell]] = (), left: int = 0, title: str | None = None
) -> Table:
    """A table with right-aligned columns. The first `left` columns are left-aligned and may wrap."""
    lines = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="dim", title=title)
    lines.title_justify, lines.title_style = "left", "dim"
    for index, column in enumerate(columns):
        if index < left:
            lines.add_column(column, overflow="fold")
        else:
            lines.add_column(column, justify="right", no_wrap=True)
    for row in rows:
        lines.add_row(*row)
    return lines


def title(env: str, algorithm: str, constraint: str) -> Text:
    return Text.assemble((f"{algorithm} on {env}", "bold"), (f"   {constraint}", "dim"))


def judged(measured: Sequence[float] | None, kind: str, allowed: float) -> tuple[str, str, str]:
    """A measured constraint (value, lower, upper) as its value, its band and a colour.

    Green: the band lies within what is allowed; red: above it; yellow: undecided.
    """
    if measured is None:
        return "-", "-", "dim"
    value, lower, upper = measured
    style = "green" if upper <= allowed else "red" if lower > allowed else "yellow"
    if kind == "chance":
        places = digits(allowed)
        return f"{value:.{places}f}", f"{lower:.{places}f} - {upper:.{places}f}", style
    return number(value), f"{number(lower)} - {number(upper)}", style


def digits(epsilon: float) -> int:
    """Decimal places that resolve a tenth of epsilon, at least three."""
    return max(3, 1 - math.floor(math.log10(epsilon)))


def number(value: float | None) -> str:
    if value is None or math.isnan(value):
        return "-"
    if math.isinf(value):
        return str(value)
    places = 3 if abs(value) < 10 else 2 if abs(value) < 100 else 1 if abs(value) < 1000 else 0
    return f"{round(value, places) + 0.0:,.{places}f}"


def clock_time(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours = f"{minutes // 60}:" if minutes >= 60 else ""
    return f"{hours}{minutes % 60:0{2 if hours else 1}d}:{rest:02d}"
