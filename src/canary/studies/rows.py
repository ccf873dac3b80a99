"""The rows of a study as its views see them: a description, and the stored numbers of its group; no JAX."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from canary.errors import CanaryError
from canary.runs import directory
from canary.studies.store import read_table, stored_seeds


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
        return read_table(self.group, kind)

    def second_half(self, kind: str) -> pl.DataFrame:
        """The rows of the second half of training; of episodes the whole ones only."""
        done = int(self.summary["total_steps"]) // self.batch
        table = self.table(kind).filter((pl.col("iteration") >= -(-done // 2)) & (pl.col("iteration") < done))
        return table.filter(pl.col("valid")) if kind == "episodes" else table


def load_rows(results: Path, study: dict[str, Any]) -> tuple[list[Row], list[str]]:
    """The rows that have results, and a sentence for each group that cannot be read."""
    rows, problems = [], []
    for about in study["rows"]:
        group = results / about["group"]
        try:
            if stored_seeds(group):
                rows.append(_row(about, group))
        except CanaryError as error:
            problems.append(str(error))
        except (KeyError, TypeError, ValueError) as error:
            problems.append(f"{group} is damaged ({type(error).__name__}: {error}); restore it.")
    return rows, problems


def _row(about: dict[str, Any], group: Path) -> Row:
    config, summary = (directory.read_json(group / f"{name}.json") for name in ("config", "summary"))
    seeds = stored_seeds(group)
    if sorted(summary["seed_ids"]) != sorted(seeds):
        raise CanaryError(f"{group} was being extended when it was stopped; reproduce the study once more.")
    codes = ["-"]
    if (group / "provenance.json").exists():
        units = directory.read_json(group / "provenance.json")["units"].values()
        codes = [(unit.get("code") or "-")[:6] for unit in units]
    final = next((path for kind in ("exact", "final") if (path := group / f"{kind}.json").exists()), None)
    return Row(
        about=about,
        group=group,
        config=config,
        summary=summary,
        final=None if final is None else directory.read_json(final),
        is_exact=final is not None and final.stem == "exact",
        codes=tuple(sorted(set(codes))),
    )


def kept_groups(results: Path, study: dict[str, Any]) -> list[str]:
    """Groups in the store that no row shows: other settings, or those of another version."""
    shown = {about["group"] for about in study["rows"]}
    folders = sorted(path.parent.name for path in results.glob("*/config.json"))
    return [name for name in folders if name not in shown]
