"""A summary as a table on the terminal: a row per seed, one for all, and where things were
written."""

import math
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.text import Text

from canary.reporting.records import Comparison, Estimate, Paired
from canary.runs.settings import settings_text
from canary.terminal.formatting import judged, number, table, title


def print_summary(console: Console, summary: dict[str, Any]) -> None:
    """The end of a run or of an evaluation.

    Takes the JSON summary, in which None stands for the unknown. Beyond its stable keys it shows,
    where present: `seed_ids`, cost and jitter or else length per seed, a `note`, and `paths` (label
    to path). It fits into 80 columns.
    """
    rates = summary["violation_per_seed"]
    has_jitter = (
        summary["constraint"]["kind"] == "chance" and summary["violation_jitter"] is not None
    )
    columns = {
        "seed": [*map(str, summary.get("seed_ids", range(len(rates)))), "all"],
        "return": _numbers(summary, "return_per_seed", "return_mean"),
        "cost": _costs(summary),
        "length": [] if has_jitter else _numbers(summary, "length_per_seed", "length_mean"),
        **_judgements(summary),
        "jitter": _numbers(summary, "jitter_per_seed", "violation_jitter") if has_jitter else [],
        "safe": _verdicts(summary["constraint_per_seed"], summary["constraint_allowed"]),
    }
    shown = {name: cells for name, cells in columns.items() if cells}
    lines = table(*shown)
    *seeds, whole = zip(*shown.values(), strict=True)
    for row in seeds:
        lines.add_row(*row)
    lines.add_section()
    lines.add_row(*whole, style="bold")
    heading = title(summary["env"], summary["algorithm"], summary["constraint_text"])
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


def _judgements(summary: dict[str, Any]) -> dict[str, list[Text]]:
    """What the constraint limits and its interval, the last one of all episodes together."""
    values = [*summary["constraint_per_seed"], summary["constraint_value"]]
    intervals = [*summary["constraint_interval_per_seed"], summary["constraint_interval"]]
    columns: dict[str, list[Text]] = {summary["constraint_label"]: [], "95% interval": []}
    for value, interval in zip(values, intervals, strict=True):
        measured = None if value is None else (value, *(interval or (value, value)))
        text, band, style = judged(
            measured, summary["constraint"]["kind"], summary["constraint_allowed"]
        )
        band = "-" if interval is None else band
        for column, cell in zip(columns.values(), (text, band), strict=True):
            column.append(Text(cell, style))
    return columns


def _verdicts(values: Sequence[float | None], allowed: float) -> list[str]:
    known = [value <= allowed for value in values if value is not None]
    each = ["-" if value is None else "yes" if value <= allowed else "no" for value in values]
    return [*each, f"{sum(known)} of {len(known)}"]


def print_comparison(console: Console, comparison: Comparison) -> None:
    lines = table("run", "return", "against first", "constraint", "safe")
    lines.columns[0].justify = "left"
    lines.columns[0].no_wrap, lines.columns[0].overflow = False, "fold"
    for run in comparison["runs"]:
        name = run["run"] + (f"\n{settings_text(run['differs'])}" if run["differs"] else "")
        lines.add_row(
            name,
            _interval(run["return_mean"]),
            _difference(run["return_against_first"]),
            _interval(run["constraint_value"]),
            f"{run['safe_seeds']} of {run['seeds']}",
        )
    console.print(Text(f"runs on {comparison['env']}", "bold"), lines, sep="\n")
    texts = dict.fromkeys(run["constraint_text"] for run in comparison["runs"])
    console.print(Text(f"constraint  {'; '.join(texts)}"), soft_wrap=True)
    console.print(
        Text(
            "Second half of training; 95% intervals over seeds; against first: on the seeds that "
            "both have."
        ),
        soft_wrap=True,
    )


def _interval(estimate: Estimate | None) -> str:
    if estimate is None:
        return "-"
    if estimate["lower"] is None or estimate["upper"] is None:
        return number(estimate["mean"])
    return f"{number(estimate['mean'])} ({number(estimate['lower'])} - {number(estimate['upper'])})"


def _difference(paired: Paired | None) -> str:
    if paired is None:
        return "-"
    return f"{paired['difference']:+.3g} ± {paired['half_width']:.2g}"
