"""A summary as a table on the terminal: a row per seed, one for all, and where things were written."""

import math
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.text import Text

from canary.experiments.formatting import chance, digits, number, table, title


def print_summary(console: Console, summary: dict[str, Any]) -> None:
    """The end of a run or of an evaluation.

    Takes the JSON summary, in which None stands for the unknown. Beyond its stable keys it shows, where
    present: `seed_ids`, `episodes_per_seed` (for the intervals), cost and jitter or else length per seed, a
    `note`, and `paths` (label to path). It fits into 80 columns.
    """
    rates = summary["violation_per_seed"]
    columns = {
        "seed": [*map(str, summary.get("seed_ids", range(len(rates)))), "all"],
        "return": _numbers(summary, "return_per_seed", "return_mean"),
        "cost": _costs(summary),
        "length": []
        if summary["violation_jitter"] is not None
        else _numbers(summary, "length_per_seed", "length_mean"),
        **_chances(summary),
        "jitter": _numbers(summary, "jitter_per_seed", "violation_jitter"),
        "safe": _verdicts(rates, summary["epsilon"]),
    }
    shown = {name: cells for name, cells in columns.items() if cells}
    lines = table(*shown)
    *seeds, whole = zip(*shown.values(), strict=True)
    for row in seeds:
        lines.add_row(*row)
    lines.add_section()
    lines.add_row(*whole, style="bold")
    heading = title(summary["env"], summary["algorithm"], summary["limit"], summary["epsilon"])
    console.print(heading, lines, Text(summary.get("note", "")), sep="\n")
    for seed, sentence in summary.get("warnings", {}).items():
        console.print(Text(f"seed {seed} is {sentence}.", style="yellow"), soft_wrap=True)
    for label, path in summary.get("paths", {}).items():
        console.print(Text.assemble((f"{label:<12}", "dim"), str(path)), soft_wrap=True)


def _numbers(summary: dict[str, Any], each: str, whole: str) -> list[str]:
    """A column of numbers; empty, so that it is left out, if nothing is known of it."""
    values = [*summary.get(each, [None] * len(summary["violation_per_seed"])), summary.get(whole)]
    known = [math.nan if value is None else value for value in values]
    return [] if all(map(math.isnan, known)) else [number(value) for value in known]


def _costs(summary: dict[str, Any]) -> list[str]:
    means = _numbers(summary, "cost_per_seed", "cost_mean")
    deviations = _numbers(summary, "cost_deviation_per_seed", "cost_deviation")
    return [f"{mean} ± {deviation}" for mean, deviation in zip(means, deviations, strict=True)]


def _chances(summary: dict[str, Any]) -> dict[str, list[Text]]:
    """Violation rates and their intervals, the last one of all episodes together."""
    limit, epsilon, rates = summary["limit"], summary["epsilon"], summary["violation_per_seed"]
    episodes = summary.get("episodes_per_seed", [0] * len(rates))
    violations = [round((rate or 0) * count) for rate, count in zip(rates, episodes, strict=True)]
    columns: dict[str, list[Text]] = {f"P(cost > {limit:g})": [], "95% interval": []}
    for rate, count, total in zip(
        [*rates, summary["violation_probability"]],
        [*violations, sum(violations)],
        [*episodes, sum(episodes)],
        strict=True,
    ):
        _, band, style = chance(count, total, epsilon)
        text = "-" if rate is None else f"{rate:.{digits(epsilon)}f}"
        for column, cell in zip(columns.values(), (text, band), strict=True):
            column.append(Text(cell, style))
    return columns


def _verdicts(rates: Sequence[float | None], epsilon: float) -> list[str]:
    known = [rate <= epsilon for rate in rates if rate is not None]
    each = ["-" if rate is None else "yes" if rate <= epsilon else "no" for rate in rates]
    return [*each, f"{sum(known)} of {len(known)}"]
