"""What `canary list` shows: the runs of a directory, newest first, and everything that can be
named."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from canary.errors import CanaryError
from canary.runs import directory
from canary.runs.settings import settings_text
from canary.terminal.formatting import number, table

NUMBERS = ("return_mean", "violation_probability", "constraint_value", "limit", "epsilon")


def run_record(row: directory.RunRow, differs: dict[str, Any]) -> dict[str, Any]:
    """A run as JSON data, with how it differs from the others and the headline numbers of its
    summary if it has one."""
    record = {"path": row.path, "status": row.status, "started": row.started, "steps": row.steps}
    record |= asdict(row.headline) if row.headline else {}
    record |= {"tags": list(row.tags), "differs": differs}
    try:
        place = Path(row.path) / "summary.json"
        summary = directory.unsealed(directory.read_json(place), place)
    except CanaryError:
        summary = {}
    numbers = {name: summary.get(name) for name in NUMBERS}
    label = summary.get("constraint_label")
    record["constraint_label"] = label if isinstance(label, str) else None
    return record | {
        name: value if isinstance(value, int | float) and abs(value) < 1e300 else None
        for name, value in numbers.items()
    }


def print_lists(
    console: Console, root: str, runs: list[dict[str, Any]], known: dict[str, dict[str, str]]
) -> None:
    if runs:
        lines = table("run", "seeds", "steps", "status", "return", "constraint")
        lines.columns[0].justify = "left"
        lines.columns[0].no_wrap = False
        lines.columns[0].overflow = "fold"
        for run in runs:
            lines.add_row(*_cells(run))
        console.print(Text.assemble(("runs", "bold"), f" in {root}"), lines, sep="\n")
    else:
        console.print(
            Text.assemble(
                ("runs", "bold"), f" in {root}: none yet; start one with `canary train`.\n"
            )
        )
    for title, entries in known.items():
        console.print(Text(title, "bold"))
        for name, text in entries.items():
            console.print(Text.assemble(f"  {name:<14} ", (text, "dim")))
        console.print()


def _cells(run: dict[str, Any]) -> list[str]:
    if "env" not in run:
        return [Path(run["path"]).name, "-", "-", run["status"], "-", "-"]
    planned, done = run["total_steps"], run["steps"]
    steps = f"{done:,}" if done == planned else f"{done:,} of {planned:,}"
    shown = ["-" if run["return_mean"] is None else number(run["return_mean"]), _constraint(run)]
    words = [settings_text(run["differs"]), *(f"#{tag}" for tag in run["tags"])]
    about = " ".join(word for word in words if word)
    name = Path(run["path"]).name + (f"\n  {about}" if about else "")
    return [name, str(run["seeds"]), steps, run["status"], *shown]


def _constraint(run: dict[str, Any]) -> str:
    """What the run's own constraint limits, as training saw it; of older runs the violations."""
    if run["constraint_value"] is not None and run["constraint_label"] is not None:
        return f"{run['constraint_label']} {number(run['constraint_value'])}"
    value = run["violation_probability"]
    return "-" if value is None else f"P(violation) {number(value)}"


def print_settings(console: Console, rows: list[dict[str, str]]) -> None:
    """Settings with default, range and meaning; a preset may start from other values than the
    defaults."""
    lines = table("setting", "default", "range", "meaning")
    for column in lines.columns:
        column.justify, column.no_wrap, column.overflow = "left", False, "fold"
    lines.columns[0].no_wrap = True
    for row in rows:
        lines.add_row(*(row[name] for name in ("setting", "default", "range", "about")))
    console.print(lines)
    console.print(Text("Defaults are the paper's; the preset and --set start from there.", "dim"))
