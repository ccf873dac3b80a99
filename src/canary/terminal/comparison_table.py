"""Runs beside each other on the terminal."""

from rich.console import Console
from rich.text import Text

from canary.reporting.records import Comparison, Estimate, Paired
from canary.runs.differing import settings_text
from canary.terminal.formatting import number, table


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
            "Second half of training; 95% intervals over seeds; against first: on the seeds that both have."
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
