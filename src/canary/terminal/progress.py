"""The display while training: a live table on a terminal, occasional lines in a log.

The constrained quantity is measured on the episodes of the most recent updates, with a 95% interval
(exact binomial for P(cost > limit)). The policy changes during these episodes, so they are no
guarantee. Everything goes to standard error, because `--json -` needs standard output.
"""

import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from statistics import fmean

import numpy as np
from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from canary.constraints import Constraint, One, own_costs, parts_of
from canary.numerics.statistics import measurement
from canary.terminal.console import error_console
from canary.terminal.formatting import Cell, judged, number, table

ROWS = 12  # largest number of seeds with a row
WIDE = 100  # terminal columns that show more about the updates
LINE_SECONDS, LINE_FRACTION = 10.0, 0.05  # between lines of a log: seconds, share of the run


@dataclass(frozen=True)
class SeedStatus:
    """One seed over its most recent updates."""

    seed: int
    return_mean: float
    costs: Sequence[float | Sequence[float]] = ()
    """Costs of the episodes that ended in the last `updates` updates, with all of several costs."""
    updates: int = 0
    extras: dict[str, float] = field(default_factory=dict)
    """Metrics of the method: entropy, the price of the constraint, ..."""
    warning: str | None = None

    @property
    def span(self) -> str:
        """The episodes that the numbers describe, in words."""
        updates = "update" if self.updates == 1 else f"{self.updates} updates"
        return f"{len(self.costs):,} episodes of the last {updates}"

    def judged(self, constraint: One) -> Text:
        """The constrained quantity with its 95% interval."""
        own = own_costs(constraint, self.costs) if len(self.costs) else ()
        value, *interval = measurement(constraint, np.asarray(own, float)) or (None,)
        return judged(value, interval, constraint.kind, constraint.allowed)

    def line(
        self, name: str, constraint: Constraint, extras: Sequence[str] = ()
    ) -> dict[str, Cell]:
        """The cells of the seed; the cost is its mean and deviation."""
        count = len(self.costs)
        costs = np.asarray(self.costs, float).reshape(count, -1).T if count else ()
        spread = (f"{number(one.mean())} ± {number(one.std())}" for one in costs)
        return {
            "seed": name,
            "return": number(self.return_mean),
            **{f"{part.label} [95%]": self.judged(part) for part in parts_of(constraint)},
            "cost": ", ".join(spread) or "- ± -",
            **{each.replace("_", " "): number(self.extras.get(each)) for each in extras},
        }


def pool(seeds: Sequence[SeedStatus]) -> SeedStatus:
    """Several seeds as one, with all their episodes and the means of other numbers."""

    def mean(values: Iterable[float]) -> float:
        known = [value for value in values if not math.isnan(value)]
        return fmean(known) if known else math.nan

    ended = [one for one in seeds if len(one.costs)]
    returns, weights = [one.return_mean for one in ended], [len(one.costs) for one in ended]
    return SeedStatus(
        seed=-1,
        return_mean=fmean(returns, weights) if ended else math.nan,
        costs=[cost for one in ended for cost in one.costs],
        updates=max(one.updates for one in seeds),
        extras={
            name: mean(one.extras.get(name, 0.0) for one in seeds)
            for name in dict.fromkeys(name for one in seeds for name in one.extras)
        },
    )


class TrainingProgress:
    """Context manager around a training loop, which calls `update` after every chunk."""

    def __init__(
        self,
        heading: Text,
        constraint: Constraint,
        total_steps: int,
        *,
        quiet: bool = False,
        console: Console | None = None,
        clock: Callable[[], float] = time.monotonic,
    ):
        self._console = console or error_console()
        self._heading, self._constraint, self._total = heading, constraint, total_steps
        self._quiet, self._clock = quiet, clock
        self._live: Live | None = None
        self._seeds: Sequence[SeedStatus] = ()
        self._told: dict[int, str] = {}
        self._steps, self._speed, self._work = 0, 0.0, ""
        self._started = self._updated = clock()
        self._line_time, self._line_steps = -math.inf, 0

    def __enter__(self) -> "TrainingProgress":
        if self._console.is_interactive and not self._quiet:
            how = {"refresh_per_second": 2, "redirect_stdout": False}
            self._live = Live(get_renderable=self._render, console=self._console, **how)
            self._live.start()
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if self._live:
            self._live.transient = error is None  # keep the last table after a failure
            self._live.stop()
        elif self._seeds and self._line_steps != self._steps:
            self._print_line()

    def update(self, seeds: Sequence[SeedStatus], steps: int, steps_per_second: float) -> None:
        """Show the state after a chunk; `steps` counts all steps so far."""
        self._seeds, self._steps, self._speed = seeds, steps, steps_per_second
        self._updated, self._work = self._clock(), ""
        is_due = self._updated - self._line_time >= LINE_SECONDS
        if self._live:
            self._live.refresh()
        elif is_due or steps - self._line_steps >= LINE_FRACTION * self._total:
            self._print_line()

    def busy(self, text: str) -> None:
        """Show a text such as "compiling" until the next update."""
        self._work = f"{text} ..."
        if not self._live:
            self.message(self._work)

    def message(self, text: str, *, warning: bool = False) -> None:
        """Print a permanent line, above the table or in the log."""
        if not self._quiet:
            self._console.print(Text(text, "yellow" if warning else ""), soft_wrap=True)

    def _print_line(self) -> None:
        self._line_time, self._line_steps = self._clock(), self._steps
        whole = pool(self._seeds)
        _, *measured = whole.line("all", self._constraint).items()
        cells = (
            f"{self._steps / self._total:4.0%}  {self._steps:,} steps",
            *(f"{name} {cell}" for name, cell in measured),
            f"({whole.span})",
            self._pace(),
        )
        self.message("  ".join(cells))
        for one in self._seeds:  # a log warns of a seed once, even if the numbers change
            kind = (one.warning or "").partition(":")[0]
            if one.warning and self._told.get(one.seed) != kind:
                self._told[one.seed] = kind
                self.message(f"seed {one.seed}: {one.warning}", warning=True)

    def _pace(self) -> str:
        """The speed, and the time left at this speed."""
        if not self._speed > 0:
            return "- steps/s"
        left = (self._total - self._steps) / self._speed - (self._clock() - self._updated)
        return f"{self._speed:,.0f} steps/s  {_clock_time(max(left, 0.0))} left"

    def _render(self) -> Group:
        """The whole display; the refresh thread of `Live` calls it too."""
        bar = Table.grid(padding=(0, 3, 0, 0))
        width = max(10, self._console.width - 80)
        bar.add_row(
            ProgressBar(self._total, self._steps, width, complete_style="cyan"),
            f"{self._steps:,} / {self._total:,} steps",
            f"{_clock_time(self._clock() - self._started)} elapsed",
            self._pace(),
        )
        lines = [f"seed {one.seed}: {one.warning}" for one in self._seeds if one.warning]
        warnings = (Text(line, "yellow") for line in lines[:ROWS])
        return Group(
            self._heading, self._table() if self._seeds else "", bar, *warnings,
            Text(self._work, "dim"),
        )  # fmt: skip

    def _table(self) -> Table:
        """A line per seed, as many as fit, and a line for all."""
        seeds, whole = self._seeds, pool(self._seeds)
        extras = list(whole.extras) if self._console.width >= WIDE else []
        rows = min(ROWS, max(1, self._console.height - 14))
        lines = [one.line(str(one.seed), self._constraint, extras) for one in seeds[:rows]]
        name = "all" if len(seeds) <= rows else f"all {len(seeds)}"
        total = whole.line(name, self._constraint, extras) if len(seeds) > 1 else None
        return table(lines, total, title=whole.span)


def _clock_time(seconds: float) -> str:
    return str(timedelta(seconds=int(seconds))).removeprefix("0:")
