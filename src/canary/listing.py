"""What `canary list` shows: the runs of a directory, newest first, and everything that can be named."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape

from canary.errors import CanaryError
from canary.experiments import storage
from canary.experiments.formatting import number, table


def run_record(row: storage.RunRow) -> dict[str, Any]:
    """A run as JSON data, with the headline numbers of its summary if it has one."""
    record = {"path": row.path, "status": row.status, "started": row.started, "steps": row.steps}
    record |= asdict(row.headline) if row.headline else {}
    try:
        summary = storage.read_json(Path(row.path) / "summary.json")
    except CanaryError:
        summary = {}
    numbers = {
        name: summary.get(name) for name in ("return_mean", "violation_probability", "limit", "epsilon")
    }
    return record | {
        name: value if isinstance(value, int | float) else None for name, value in numbers.items()
    }


def print_lists(
    console: Console, root: str, runs: list[dict[str, Any]], known: dict[str, dict[str, str]]
) -> None:
    if runs:
        lines = table("run", "seeds", "steps", "status", "return", "P(violation)")
        lines.columns[0].justify = "left"
        lines.columns[0].no_wrap = False
        lines.columns[0].overflow = "fold"
        for run in runs:
            lines.add_row(*_cells(run))
        console.print(f"[bold]runs[/] in {escape(root)}", lines, sep="\n")
    else:
        console.print(f"[bold]runs[/] in {escape(root)}: none yet; start one with `canary train`.\n")
    for title, entries in known.items():
        console.print(f"[bold]{title}[/]")
        for name, text in entries.items():
            console.print(f"  {name:<13} [dim]{text}[/]")
        console.print()


def _cells(run: dict[str, Any]) -> list[str]:
    if "env" not in run:
        return [escape(Path(run["path"]).name), "-", "-", run["status"], "-", "-"]
    planned, done = run["total_steps"], run["steps"]
    steps = f"{done:,}" if done == planned else f"{done:,} of {planned:,}"
    shown = [
        "-" if run[name] is None else number(run[name]) for name in ("return_mean", "violation_probability")
    ]
    return [escape(Path(run["path"]).name), str(run["seeds"]), steps, run["status"], *shown]
