"""Numbers and tables for people. A table is a list of lines; a line maps columns to cells. The same
lines become a table on a terminal, Markdown or CSV."""

import io
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from rich import box
from rich.table import Table
from rich.text import Text


class Number(NamedTuple):
    """A number with its standard error or its interval. With `epsilon` it is a probability."""

    value: float | None
    error: float | None = None
    interval: Sequence[float] | None = None
    epsilon: float | None = None

    def __str__(self) -> str:
        def text(value: float | None) -> str:
            if self.epsilon is None:
                return number(value, _places(self.value))
            return chance(value, self.epsilon)

        if self.error is not None:
            return f"{text(self.value)} ± {text(self.error)}"
        between = "" if self.interval is None else f" [{', '.join(map(text, self.interval))}]"
        return text(self.value) + between

    def parts(self, column: str) -> dict[str, float | None]:
        """The numbers by name, for CSV."""
        lower, upper = self.interval or (None, None)
        ends = {f"{column} lower": lower, f"{column} upper": upper}
        return {column: self.value, f"{column} error": self.error, **ends}


Cell = str | Text | Number | None
Line = Mapping[str, Cell]


def columns(lines: Iterable[Mapping[str, Any]]) -> list[str]:
    """All columns, in the order of the longest line."""
    lines = list(lines)
    names = [*max(lines, key=len, default={}), *(name for line in lines for name in line)]
    empty = (None, "", Number(None))
    filled = {name for line in lines for name, cell in line.items() if cell not in empty}
    return [name for name in dict.fromkeys(names) if name in filled]


def table(
    lines: Sequence[Line], total: Line | None = None, left: int = 0, title: str | None = None
) -> Table:
    """A table with right-aligned columns; the first `left` are left-aligned and may wrap. `total`
    is a bold last line."""
    every = [*lines, *([] if total is None else [total])]
    made = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="dim", title=title)
    made.title_justify, made.title_style = "left", "dim"
    for index, name in enumerate(names := columns(every)):
        if index < left:
            made.add_column(name, overflow="fold")
        else:
            made.add_column(name, justify="right", no_wrap=True)
    for line in every:
        if line is total:
            made.add_section()
        made.add_row(*_cells(line, names), style="bold" if line is total else None)
    return made


def _cells(line: Line, names: Sequence[str]) -> list[str | Text]:
    cells = (line.get(name) for name in names)
    return [cell if isinstance(cell, Text) else "" if cell is None else str(cell) for cell in cells]


def markdown(lines: Sequence[Line]) -> list[str]:
    names = columns(lines)
    head, *rest = [
        f"| {' | '.join(map(str, row))} |"
        for row in (names, *(_cells(line, names) for line in lines))
    ]
    return [head, "|" + "---|" * len(names), *rest]


def csv(lines: Sequence[Line]) -> str:
    """CSV with numbers in full precision, and errors and intervals in their own columns."""
    import polars as pl

    flat = [
        {
            column: part
            for name, cell in line.items()
            for column, part in (
                cell.parts(name) if isinstance(cell, Number) else {name: cell}
            ).items()
        }
        for line in lines
    ]
    text = io.StringIO()
    frame = pl.DataFrame(flat, infer_schema_length=None)
    frame.select(columns(flat)).write_csv(text)
    return text.getvalue()


def title(text: str, about: str = "") -> Text:
    return Text.assemble((text, "bold"), (f"   {about}" if about else "", "dim"))


def judged(
    value: float | None, interval: Sequence[float] | None, kind: str, allowed: float
) -> Text:
    """A measured constraint with its interval.

    Green: the interval is within the allowed value; red: it is above; yellow: undecided.
    """
    if value is None:
        return Text("-", "dim")
    lower, upper = interval or (value, value)
    style = "green" if upper <= allowed else "red" if lower > allowed else "yellow"
    places = digits(allowed) if kind == "chance" else None
    ends = f" [{number(lower, places)}, {number(upper, places)}]" if interval else ""
    return Text(number(value, places) + ends, style)


def span(lower: float | None, upper: float | None, places: int | None = None) -> str:
    return f"{number(lower, places)} - {number(upper, places)}"


def digits(epsilon: float) -> int:
    """Decimal places that resolve a tenth of epsilon, at least three."""
    return max(3, 1 - math.floor(math.log10(epsilon)))


def _places(value: float | None) -> int:
    """Three decimal places; fewer for numbers from 10."""
    size = abs(value or 0.0)
    return 3 if size < 10 else 2 if size < 100 else 1 if size < 1000 else 0


def number(value: float | None, places: int | None = None) -> str:
    if value is None or math.isnan(value):
        return "-"
    if math.isinf(value):
        return str(value)
    places = _places(value) if places is None else places
    return f"{round(value, places) + 0.0:,.{places}f}"


def chance(value: float | None, epsilon: float) -> str:
    """A probability with digits that resolve epsilon; a power of ten if that would be zero."""
    places = digits(epsilon) + 1
    if not value or value >= 10**-places:
        return number(value, places)
    return f"{value:.0e}"
