"""Numbers, rates and tables as people read them on a terminal."""

import math

from rich import box
from rich.table import Table
from rich.text import Text


def title(env: str, algorithm: str, limit: float, epsilon: float) -> Text:
    return Text.assemble((f"{algorithm} on {env}", "bold"), (f"   P(cost > {limit:g}) <= {epsilon:g}", "dim"))


def table(*columns: str) -> Table:
    empty = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="dim")
    for column in columns:
        empty.add_column(column, justify="right", no_wrap=True)
    return empty


def chance(violations: int, episodes: int, epsilon: float) -> tuple[str, str, str]:
    """A violation rate, its band and their colour as text, with digits that suit epsilon."""
    if episodes == 0:
        return "-", "-", "dim"
    from canary.numerics.binomial import clopper_pearson_interval  # here, because listing runs needs no numpy

    places = digits(epsilon)
    lower, upper = clopper_pearson_interval(violations, episodes)
    style = "green" if upper <= epsilon else "red" if lower > epsilon else "yellow"
    return f"{violations / episodes:.{places}f}", f"{lower:.{places}f} - {upper:.{places}f}", style


def digits(epsilon: float) -> int:
    return max(3, 1 - math.floor(math.log10(epsilon)))


def number(value: float) -> str:
    if not math.isfinite(value):
        return "-" if math.isnan(value) else str(value)
    places = 3 if abs(value) < 10 else 2 if abs(value) < 100 else 1 if abs(value) < 1000 else 0
    return f"{round(value, places) + 0.0:,.{places}f}"


def clock_time(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02d}:{rest:02d}" if minutes >= 60 else f"{minutes}:{rest:02d}"
