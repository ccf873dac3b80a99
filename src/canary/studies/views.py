"""From the store to tables and figures: what `canary reproduce NAME --rebuild` runs; no JAX, no
training."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from canary.errors import CanaryError
from canary.studies import anatomy, curves, sweep, table, table1, tail, variance_view
from canary.studies.checks import damaged, read_study
from canary.studies.page import command_of
from canary.studies.rows import Row, kept_groups, load_rows

View = Callable[[Path, dict[str, Any], list[Row], list[str]], dict[str, Path]]
"""Writes its files into the study's folder from the rows and the sentences to stand below its table;
their paths by label."""

VIEWS: dict[str, View] = {
    "study": table.save,
    "table1": table1.save,
    "training-curves": curves.save,
    "epsilon-sweep": sweep.save,
    "anatomy": anatomy.save,
    "gaussian-tail": tail.save,
}


def stored_studies(results: Path) -> list[str]:
    """The studies below a directory of results, by name."""
    return sorted(path.parent.name for path in results.glob("*/study.json"))


def save_views(results: Path) -> dict[str, Path]:
    """Write what the study's view makes of the results that are there."""
    if not (results / "study.json").exists():
        raise CanaryError(
            f"{results} has no study.json, so there is nothing to rebuild; `canary reproduce "
            f"{results.name}` makes it."
        )
    study = read_study(results)
    if study["view"] == "relative-variance":  # it has points instead of rows
        return variance_view.save(results, study)
    if study["view"] not in VIEWS:
        raise damaged(results / "study.json", f"there is no view {study['view']!r}")
    rows, notes = load_rows(results, study)
    if not rows:
        if notes:
            raise CanaryError(f"{results} holds nothing that can be shown. {' '.join(notes)}")
        raise CanaryError(
            f"{results} holds no finished seed yet; train it with `{command_of(study)}`."
        )
    notes += [*_merged(study), *_kept(results, study)]
    return VIEWS[study["view"]](results, study, rows, notes)


def _merged(study: dict[str, Any]) -> list[str]:
    """Which variants are one row, because what was asked for makes their settings the same."""
    same = [
        f"`{name}` is `{row['variant']}`" for row in study["rows"] for name in row.get("also", ())
    ]
    return [
        f"With the same settings as another row, and not shown twice: {', '.join(same)}."
    ] * bool(same)


def _kept(results: Path, study: dict[str, Any]) -> list[str]:
    """What the store holds besides the rows."""
    listed = ", ".join(f"`{name}`" for name in kept_groups(results, study))
    return [f"Kept in the store, with other settings or by another version: {listed}."] * bool(
        listed
    )
