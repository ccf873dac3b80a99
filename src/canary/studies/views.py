"""From the store to tables and figures: what `canary reproduce NAME --rebuild` runs; no JAX, no
training."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from canary.errors import CanaryError
from canary.runs import directory
from canary.studies import anatomy, curves, sweep, table, table1, tail, variance_view
from canary.studies.rows import Row, load_rows

View = Callable[[Path, dict[str, Any], list[Row], list[str]], dict[str, Path]]
"""Writes its files into the study's folder from the rows and the sentences about damage; their
paths by label."""

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
    study = directory.read_json(results / "study.json")
    try:
        if study["view"] == "relative-variance":  # it has points instead of rows
            return variance_view.save(results, study)
        view = VIEWS[study["view"]]
        rows, problems = load_rows(results, study)
    except (KeyError, TypeError) as error:
        raise CanaryError(
            f"{results / 'study.json'} is damaged ({error}); reproduce the study again."
        ) from error
    if not rows:
        tail = (
            f" {' '.join(problems)}"
            if problems
            else f" Train it with `canary reproduce {results.name}`."
        )
        raise CanaryError(f"{results} holds no finished seed yet.{tail}")
    return view(results, study, rows, problems)
