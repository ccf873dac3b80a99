"""What a page shows, read from run directories and from studies: one subject each; no JAX."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl

from canary.constraints import from_dict
from canary.errors import CanaryError
from canary.report import series
from canary.reporting.summary import summarise_run
from canary.runs import directory
from canary.runs.settings import leaves
from canary.studies.cells import final_numbers
from canary.studies.checks import read_provenance, read_study
from canary.studies.rows import Row, load_rows

Frontier = Callable[[Path | None, dict[str, Any]], dict[str, Any] | None]
"""The exact frontier of a configuration, with the policies of a run if there is one; None where
there is no frontier."""


def run_subject(run: Path, frontier: Frontier) -> dict[str, Any]:
    """A run, finished or not."""
    config, summary = directory.read_config(run), summarise_run(run)
    manifest = directory.stored_manifest(run)
    versions = {
        **manifest.get("versions", {}),
        **{name: manifest.get(name) for name in ("device", "platform", "started", "finished")},
        "command": " ".join(map(str, manifest.get("command", []))),
    }
    episodes, metrics = (directory.read(run, kind) for kind in ("episodes", "metrics"))
    return _subject(run.name, config, summary, episodes, metrics) | {
        "versions": [[name, str(value)] for name, value in versions.items() if value is not None],
        "frontier": frontier(run, config),
    }


def study_subjects(results: Path, frontier: Frontier) -> tuple[list[dict[str, Any]], list[str]]:
    """The rows of a study that have results, and a sentence for each that cannot be read."""
    study = read_study(results)
    if study["view"] == "relative-variance":  # it has points instead of rows
        raise CanaryError(
            f"{results.name} trains no policy, so there are no runs to draw; "
            f"{results / 'table.md'} has what it found."
        )
    rows, problems = load_rows(results, study)
    if not rows and not problems:
        raise CanaryError(f"{results} holds no finished seed yet; train it first.")
    subjects = []
    for row in rows:
        try:
            subjects.append(_row_subject(row, frontier))
        except CanaryError as error:
            problems.append(str(error))
    return subjects, problems


def _row_subject(row: Row, frontier: Frontier) -> dict[str, Any]:
    metrics = row.table("metrics") if (row.group / "metrics.parquet").exists() else pl.DataFrame()
    subject = _subject(row.name, row.config, row.summary, row.table("episodes"), metrics)
    versions = [["code", " ".join(row.codes)]]
    if (row.group / "provenance.json").exists():
        units = read_provenance(row.group) or {}
        known = {
            f"{name} {value}"
            for seed, unit in units.items()
            for name, value in unit.get("versions", {}).items()
            if int(seed) in row.summary["seed_ids"]
        }
        versions += [["versions", ", ".join(sorted(known))]]
    frontier_with_policies = _with_stored_policies(row, frontier)
    final = final_numbers(row) if row.final else None
    return subject | {"versions": versions, "frontier": frontier_with_policies, "final": final}


def _with_stored_policies(row: Row, frontier: Frontier) -> dict[str, Any] | None:
    """The frontier of a study's row with its final policies, which are stored."""
    if row.final is None:
        return None
    seeds = row.final.get("seeds", row.summary["seed_ids"])
    columns = zip(seeds, row.final["violation_per_seed"], row.final["return_per_seed"], strict=True)
    policies = [
        {"seed": seed, "violation": p, "return": j} for seed, p, j in columns if p is not None
    ]
    found = (frontier(None, row.config) if row.is_exact else None) or {"lines": {}, "optima": {}}
    return found | {"policies": policies, "exact": row.is_exact}


def _subject(
    name: str,
    config: dict[str, Any],
    summary: dict[str, Any],
    episodes: pl.DataFrame,
    metrics: pl.DataFrame,
) -> dict[str, Any]:
    training = config["training"]
    batch = int(training["environments"]) * int(training["rollout_length"])
    done = int(summary["total_steps"]) // batch
    if episodes.filter(pl.col("valid")).is_empty():
        raise CanaryError(f"{name} has no finished episode yet, so there is nothing to draw.")
    second_half = episodes.filter(
        (pl.col("iteration") >= -(-done // 2)) & (pl.col("iteration") < done)
    )
    updates = series.updates(metrics)
    keys = (
        "env", "algorithm", "preset", "limit", "epsilon", "seeds", "total_steps", "planned_steps", "status",
        "violation_probability", "violation_standard_error", "violation_jitter", "jitter_standard_error",
        "safe_fraction", "return_mean", "return_standard_error", "steps_per_second", "warnings",
    )  # fmt: skip
    return {
        "name": name,
        "promise": from_dict(config["constraint"]).text,
        "measured": _measured(config, summary),
        **{key: summary.get(key) for key in keys},
        "curves": series.curves(episodes, summary["limit"], batch),
        "costs": series.costs(second_half, summary["limit"], summary["epsilon"]),
        "updates": updates,
        "dead_zone": _dead_zone(config, updates),
        "configuration": [[name, str(value)] for name, value in leaves(config)],
    }


def _measured(config: dict[str, Any], summary: dict[str, Any]) -> dict[str, Any]:
    """What the constraint limits, as training saw it. Summaries from before there were several
    kinds have violations alone."""
    kind = "constraint" if "constraint_value" in summary else "violation"
    value = summary.get("constraint_value", summary.get("violation_probability"))
    label = from_dict(config["constraint"]).label
    return {"label": label, "value": value, "error": summary.get(f"{kind}_standard_error")}


def _dead_zone(config: dict[str, Any], updates: dict[str, Any] | None) -> float | None:
    """Of the shaped cost at the end of training; None where the bound is on the cost itself."""
    known = [value for value in (updates or {}).get("dead_zone", []) if value is not None]
    setting = config["algorithm"].get("settings", {}).get("dead_zone")
    return known[-1] if known else setting if isinstance(setting, float | int) else None
