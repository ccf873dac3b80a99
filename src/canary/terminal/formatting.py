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


def title(text: str, about: str = "") -> Text:
    return Text.assemble((text, "bold"), (f"   {about}" if about else "", "dim"))


def judged(
    value: float | None, interval: Sequence[float] | None, kind: str, allowed: float
) -> tuple[Text, Text]:
    """A measured constraint and its interval.

    Green: the interval lies within what is allowed; red: above it; yellow: undecided.
    """
    if value is None:
        return Text("-", "dim"), Text("-", "dim")
    lower, upper = interval or (value, value)
    style = "green" if upper <= allowed else "red" if lower > allowed else "yellow"
    places = digits(allowed) if kind == "chance" else None
    band = span(lower, upper, places) if interval else "-"
    return Text(number(value, places), style), Text(band, style)


def span(lower: float | None, upper: float | None, places: int | None = None) -> str:
    return f"{number(lower, places)} - {number(upper, places)}"


def digits(epsilon: float) -> int:
    """Decimal places that resolve a tenth of epsilon, at least three."""
    return max(3, 1 - math.floor(math.log10(epsilon)))


def number(value: float | None, places: int | None = None) -> str:
    """So many decimal places, by default three and fewer above 10."""
    if value is None or math.isnan(value):
        return "-"
    if math.isinf(value):
        return str(value)
    if places is None:
        size = abs(value)
        places = 3 if size < 10 else 2 if size < 100 else 1 if size < 1000 else 0
    return f"{round(value, places) + 0.0:,.{places}f}"


def chance(value: float | None, epsilon: float) -> str:
    """Digits that resolve epsilon; a power of ten for what would read as zero."""
    places = digits(epsilon) + 1
    if not value or value >= 10**-places:
        return number(value, places)
    return f"{value:.0e}"


def clock_time(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours = f"{minutes // 60}:" if minutes >= 60 else ""
    return f"{hours}{minutes % 60:0{2 if hours else 1}d}:{rest:02d}"
