"""What a page shows, read from run directories and from studies: one subject each; no JAX."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl

from canary.constraints import from_dict
from canary.errors import CanaryError
from canary.report import series
from canary.reporting.figures import training_blocks
from canary.reporting.statistics import mean_over_seeds, standard_error
from canary.reporting.summary import summarise_run
from canary.runs import directory
from canary.runs.differing import leaves
from canary.studies.page import Row, read_page
from canary.studies.table import final_numbers, numbers

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
    batch = int(config["training"]["environments"]) * int(config["training"]["rollout_length"])
    done = int(summary["total_steps"]) // batch
    whole = episodes.filter(pl.col("valid"))
    if whole.is_empty():
        raise CanaryError(f"{run.name} has no finished episode yet, so there is nothing to draw.")
    half = whole.filter((pl.col("iteration") >= -(-done // 2)) & (pl.col("iteration") < done))
    drawn = {
        "curves": series.curves(training_blocks(whole, summary["limit"], batch)),
        "costs": series.costs(half, summary["limit"], summary["epsilon"]),
        "updates": series.updates(metrics),
    }
    return _subject(run.name, config, summary, drawn) | {
        "versions": [[name, str(value)] for name, value in versions.items() if value is not None],
        "frontier": frontier(run, config),
    }


def study_subjects(results: Path, frontier: Frontier) -> tuple[list[dict[str, Any]], list[str]]:
    """The rows of a study that have results, and a sentence for each that cannot be read."""
    page = read_page(results)
    if page.study["view"] == "relative-variance":
        raise CanaryError(
            f"{results.name} trains no policy, so there are no runs to draw; "
            f"{results / 'table.md'} has what it found."
        )
    if not page.shown and not page.notes:
        raise CanaryError(f"{results} holds no finished seed yet; train it first.")
    return [_row_subject(row, frontier) for row in page.shown], page.notes


def _row_subject(row: Row, frontier: Frontier) -> dict[str, Any]:
    blocks = row.blocks()
    count = pl.col("episodes")
    drawn = blocks.filter(count > 0).select(
        "seed", "violations", "steps",
        (pl.col("reward") / count).alias("return"),
        cost=pl.col("cost") / count,
        deviation=(pl.col("cost_squares") / count - (pl.col("cost") / count) ** 2).clip(0).sqrt(),
        violation=pl.col("violations") / count,
        count=count,
    )  # fmt: skip
    versions = {
        f"{name} {value}"
        for one in row.seeds.values()
        for name, value in (one.get("versions") or {}).items()
    }
    shown = {
        "curves": series.curves(drawn),
        "costs": None,  # the store keeps no single episode
        "updates": series.stored_updates(blocks),
    }
    return _subject(row.name, row.config, _summary(row), shown) | {
        "versions": [["code", row.codes], ["versions", ", ".join(sorted(versions))]],
        "frontier": _with_stored_policies(row, frontier),
        "final": final_numbers(row) if row.final("violation") else None,
    }


def _summary(row: Row) -> dict[str, Any]:
    """The numbers of a row under the names that a run's summary has."""
    found = numbers(row)
    names = {
        "env": "environment", "algorithm": "algorithm", "preset": "preset", "limit": "limit", "epsilon": "epsilon",
        "seeds": "seeds", "total_steps": "steps", "planned_steps": "steps", "violation_probability": "violation",
        "violation_standard_error": "violation_error", "violation_jitter": "jitter",
        "jitter_standard_error": "jitter_error", "safe_fraction": "safe", "return_mean": "reward",
        "return_standard_error": "reward_error", "steps_per_second": "steps_per_second",
    }  # fmt: skip
    warnings = {str(seed): one["warning"] for seed, one in row.seeds.items() if one["warning"]}
    measured = row.each("constraint")
    return {key: found[name] for key, name in names.items()} | {
        "status": "finished",
        "warnings": warnings,
        "constraint_value": mean_over_seeds(measured),
        "constraint_standard_error": standard_error(measured),
    }


def _with_stored_policies(row: Row, frontier: Frontier) -> dict[str, Any] | None:
    """The frontier of a study's row with its final policies, which are stored."""
    policies = [
        {"seed": seed, "violation": one["final"]["violation"], "return": one["final"]["return"]}
        for seed, one in row.seeds.items()
        if one.get("final")
    ]
    if not policies:
        return None
    is_exact = not row.final("episodes")
    found = (frontier(None, row.config) if is_exact else None) or {"lines": {}, "optima": {}}
    return found | {"policies": policies, "exact": is_exact}


def _subject(
    name: str, config: dict[str, Any], summary: dict[str, Any], drawn: dict[str, Any]
) -> dict[str, Any]:
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
        **drawn,
        "dead_zone": _dead_zone(config, drawn["updates"]),
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
