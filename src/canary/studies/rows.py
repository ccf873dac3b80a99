"""The rows of a study as its views see them: a description, and the stored numbers of its group; no
JAX."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from canary.errors import CanaryError
from canary.runs import directory
from canary.studies.store import PER_SEED, read_table, stored_seeds

# What the views read.
TABLES = {
    "episodes": ("seed", "iteration", "return", "cost", "valid"),
    "metrics": ("seed", "iteration", "steps"),
}
SUMMARY = (
    "env", "algorithm", "preset", "limit", "epsilon", "seeds", "seed_ids", "total_steps", "violation_probability",
    "violation_standard_error", "violation_jitter", "jitter_standard_error", "safe_fraction", "return_mean",
    "return_standard_error", "violation_per_seed", "return_per_seed", "cost_per_seed", "cost_deviation_per_seed",
    "steps_per_second",
)  # fmt: skip


@dataclass(frozen=True)
class Row:
    """One variant with its results."""

    about: dict[str, Any]
    """What `studies.run.describe` says of it."""
    group: Path
    config: dict[str, Any]
    summary: dict[str, Any]
    final: dict[str, Any] | None
    """Final policies: exact numbers, or those of fresh episodes; lists per seed."""
    is_exact: bool
    codes: tuple[str, ...]
    """Fingerprints of the code that made its seeds; `-` if it was made before there were any."""

    @property
    def name(self) -> str:
        return str(self.about["variant"])

    @property
    def problem(self) -> tuple[Any, ...]:
        """Rows with the same problem may be compared seed by seed."""
        return (str(self.config["environment"]), str(self.config["constraint"]))

    @property
    def batch(self) -> int:
        training = self.config["training"]
        return int(training["environments"]) * int(training["rollout_length"])

    def table(self, kind: str) -> pl.DataFrame:
        """All rows of its seeds; a group that is being extended may hold more."""
        return read_table(self.group, kind).filter(pl.col("seed").is_in(self.summary["seed_ids"]))

    def second_half(self, kind: str) -> pl.DataFrame:
        """The rows of the second half of training; of episodes the whole ones only."""
        done = int(self.summary["total_steps"]) // self.batch
        table = self.table(kind).filter(
            (pl.col("iteration") >= -(-done // 2)) & (pl.col("iteration") < done)
        )
        return table.filter(pl.col("valid")) if kind == "episodes" else table


def load_rows(results: Path, study: dict[str, Any]) -> tuple[list[Row], list[str]]:
    """The rows that have results, and a sentence for each group that cannot be read."""
    rows, problems = [], []
    for about in study["rows"]:
        group = results / about["group"]
        problem = damage(group)
        if problem is not None:
            problems.append(problem)
        elif stored_seeds(group):
            row = _row(about, group)
            seeds = sorted(stored_seeds(group))
            if (
                sorted(row.summary["seed_ids"])
                == sorted((row.final or {}).get("seeds", seeds))
                == seeds
            ):
                rows.append(row)
            else:
                problems.append(
                    f"{group} was being extended when it was stopped; reproduce the study once "
                    "more."
                )
    return rows, problems


def damage(group: Path) -> str | None:
    """A sentence about what is missing in a group, damaged, or not what its name says; None if all
    is well."""
    try:
        if stored_seeds(group):
            _check(group)
        elif (group / "config.json").exists():
            directory.read_json(group / "config.json")
    except CanaryError as error:
        return str(error)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        return f"{group} is damaged ({type(error).__name__}: {error}); restore it."
    return None


def _check(group: Path) -> None:
    config, summary = (
        directory.read_json(group / f"{name}.json") for name in ("config", "summary")
    )
    for path, content, needed in (
        (group / "config.json", config, ("environment", "constraint", "algorithm", "training")),
        (group / "summary.json", summary, SUMMARY),
    ):
        missing = [name for name in needed if name not in content]
        if missing:
            raise CanaryError(f"{path} is damaged (it has no {missing[0]!r}); restore it.")
    _final(group)
    for kind, columns in TABLES.items():
        if kind == "metrics" and not (group / "provenance.json").exists():
            continue  # older results had no such table
        found = read_table(group, kind).columns
        missing = [name for name in columns if name not in found]
        if missing:
            path = group / f"{kind}.parquet"
            raise CanaryError(
                f"{path} is no table of {kind} (it has no column {missing[0]!r}); restore it."
            )


def _final(group: Path) -> tuple[dict[str, Any] | None, bool]:
    """The numbers of the final policies, if there are any, and whether they are exact."""
    for kind in PER_SEED:
        if (group / f"{kind}.json").exists():
            return directory.read_json(group / f"{kind}.json"), kind == "exact"
    return None, False


def _row(about: dict[str, Any], group: Path) -> Row:
    codes = ["-"]
    if (group / "provenance.json").exists():
        units = directory.read_json(group / "provenance.json")["units"].values()
        codes = [code[:6] for unit in units for code in (unit.get("code") or "-").split()]
    final, is_exact = _final(group)
    return Row(
        about=about,
        group=group,
        config=directory.read_json(group / "config.json"),
        summary=directory.read_json(group / "summary.json"),
        final=final,
        is_exact=is_exact,
        codes=tuple(sorted(set(codes))),
    )


def kept_groups(results: Path, study: dict[str, Any]) -> list[str]:
    """Groups in the store that no row shows: other settings, or those of another version."""
    shown = {about["group"] for about in study["rows"]}
    folders = sorted(path.parent.name for path in results.glob("*/config.json"))
    return [name for name in folders if name not in shown]
