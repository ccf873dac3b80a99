"""Numbers, rates and tables as people read them on a terminal."""

import math
from collections.abc import Sequence

from rich import box
from rich.table import Table
from rich.text import Text


def title(env: str, algorithm: str, constraint: str) -> Text:
    return Text.assemble((f"{algorithm} on {env}", "bold"), (f"   {constraint}", "dim"))


def table(*columns: str) -> Table:
    empty = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="dim")
    for column in columns:
        empty.add_column(column, justify="right", no_wrap=True)
    return empty


def judged(measured: Sequence[float] | None, kind: str, allowed: float) -> tuple[str, str, str]:
    """What was measured of a constraint (value, lower, upper), its band, and their colour, with
    digits that suit."""
    if measured is None:
        return "-", "-", "dim"
    value, lower, upper = measured
    style = "green" if upper <= allowed else "red" if lower > allowed else "yellow"
    if kind == "chance":
        places = digits(allowed)
        return f"{value:.{places}f}", f"{lower:.{places}f} - {upper:.{places}f}", style
    return number(value), f"{number(lower)} - {number(upper)}", style


def digits(epsilon: float) -> int:
    return max(3, 1 - math.floor(math.log10(epsilon)))


def number(value: float) -> str:
    if not math.isfinite(value):
        return "-" if math.isnan(value) else str(value)
    places = 3 if abs(value) < 10 else 2 if abs(value) < 100 else 1 if abs(value) < 1000 else 0
    return f"{round(value, places) + 0.0:,.{places}f}"


def clock_time(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    return (
        f"{minutes // 60}:{minutes % 60:02d}:{rest:02d}"
        if minutes >= 60
        else f"{minutes}:{rest:02d}"
    )
