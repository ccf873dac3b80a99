"""The Markdown page of a study: what it says first, its figure, its table, and what cannot be
shown."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import polars as pl

Rows = Sequence[Sequence[str]]


def write_page(
    results: Path,
    study: dict[str, Any],
    about: str,
    head: Sequence[str],
    rows: Rows,
    notes: Iterable[str] = (),
    figure: tuple[str, str] | None = None,
    footnote: str | None = None,
) -> None:
    """Write table.md; `about` follows the command that makes the study, `figure` is (what it shows,
    its file)."""
    lines = [f"# {study['title']}", "", f"`{command_of(study)}`. {about}", ""]
    lines += [] if figure is None else [f"![{figure[0]}]({figure[1]})", ""]
    lines += [table_row(head), "|" + "---|" * len(head), *map(table_row, rows)]
    below = [*(f"- {note}" for note in notes), *([] if footnote is None else [footnote])]
    lines += ["", *below] if below else []
    (results / "table.md").write_text("\n".join(lines) + "\n")


def command_of(study: dict[str, Any]) -> str:
    """What makes the study: a command of its own, or `canary reproduce`."""
    return str(study.get("command", f"canary reproduce {study['name']}"))


def table_row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def write_data(results: Path, data: pl.DataFrame | list[dict[str, Any]], **how: Any) -> None:
    """Write table.csv."""
    frame = data if isinstance(data, pl.DataFrame) else pl.DataFrame(data, infer_schema_length=None)
    frame.write_csv(results / "table.csv", **how)


def paths_of(results: Path, figure: str | None = None) -> dict[str, Path]:
    """The files of a study's page by label."""
    paths = {"table": results / "table.md", "data": results / "table.csv"}
    return paths if figure is None else paths | {"figure": results / figure}


def shown(value: float | None, form: str) -> str:
    """A number as a cell of the table; - where it is not known."""
    return "-" if value is None else format(value, form)
