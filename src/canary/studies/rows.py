"""The rows of a study as its views see them: a description, and the stored numbers of its group; no
JAX.

A row shows the seeds that were asked for (`seeds` in study.json), or all where none were. What
cannot be shown, and what is shown in part, is told in a sentence each, which stand below the table.
"""

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import polars as pl

from canary.errors import CanaryError
from canary.studies.checks import read_config, read_final, read_provenance, read_summary
from canary.studies.store import PER_SEED, TABLES, read_table, read_units, stored_seeds, summary_of
from canary.studies.tables import check_tables

Final = tuple[dict[str, Any] | None, bool]


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
        """All rows of its seeds; a group may hold more."""
        return read_table(self.group, kind).filter(pl.col("seed").is_in(self.summary["seed_ids"]))

    def second_half(self, kind: str) -> pl.DataFrame:
        """The rows of the second half of training; of episodes the whole ones only."""
        done = int(self.summary["total_steps"]) // self.batch
        table = self.table(kind).filter(
            (pl.col("iteration") >= -(-done // 2)) & (pl.col("iteration") < done)
        )
        return table.filter(pl.col("valid")) if kind == "episodes" else table


def load_rows(results: Path, study: dict[str, Any]) -> tuple[list[Row], list[str]]:
    """The rows that have results, and a sentence for all that cannot be shown or is not known."""
    rows, notes = [], []
    for about in study["rows"]:
        try:
            row, said = _load(results / about["group"], about)
        except CanaryError as error:
            row, said = None, [str(error)]
        rows += [] if row is None else [row]
        notes += said
    return rows, notes


def damage(group: Path) -> str | None:
    """A sentence about what is missing in a group, damaged, or not what its name says; None if all
    is well. A group that was being extended when it was stopped is well: it can go on."""
    try:
        _check(group)
    except CanaryError as error:
        return str(error)
    return None


def _check(group: Path) -> None:
    if group.exists() and not group.is_dir():
        raise CanaryError(f"{group} is a file where the folder of a group should be; remove it.")
    stored = stored_seeds(group)
    if stored:
        config = read_config(group)
        summary, (final, _) = read_summary(group, config), _final(group, stored)
        tables = check_tables(group, config, summary)
        for path, seeds in (
            (group / "summary.json", summary["seed_ids"]),
            (_final_file(group), (final or {}).get("seeds", stored)),
        ):
            # Those of seeds that are being added are in the tables already.
            if not set(stored) <= set(seeds) <= tables:
                raise CanaryError(
                    f"{path} is of other seeds ({_some(seeds)}) than its group ({_some(stored)}); "
                    "restore it."
                )
    elif (group / "config.json").exists():
        read_config(group)
    if read_provenance(group) is None and not (group / "summary.json").exists():
        names = (
            "config.json",
            *(f"{kind}.parquet" for kind in TABLES),
            *(f"{kind}.json" for kind in PER_SEED),
        )
        left = [name for name in names if (group / name).exists()]
        if left:
            raise CanaryError(
                f"{group} has {left[0]}, but neither provenance.json nor summary.json; restore "
                "them, or delete the folder and reproduce."
            )


def _some(seeds: list[int]) -> str:
    return " ".join(map(str, seeds[:8])) + (" ..." if len(seeds) > 8 else "")


def _load(group: Path, about: dict[str, Any]) -> tuple[Row | None, list[str]]:
    """The row of a group, if it can be shown, and what is to be said of it."""
    _check(group)
    stored = stored_seeds(group)
    if not stored:
        return None, _untrained(group, about)
    config = read_config(group)
    summary, (final, is_exact) = read_summary(group, config), _final(group, stored)
    _check_identity(group, about, summary)
    if not set(summary["seed_ids"]) == set((final or {}).get("seeds", stored)) == set(stored):
        return None, [
            f"{group} was being extended when it was stopped; reproduce the study once more."
        ]
    row = Row(about, group, config, summary, final, is_exact, _codes(group, stored))
    notes = []
    if read_provenance(group) is None:
        notes.append(f"{group} has no provenance.json, so the code that made it is not known.")
    if final is None:
        notes.append(
            f"{group} has neither exact.json nor final.json, so its final policies are not known."
        )
    wanted = [seed for seed in stored if seed in about.get("seeds", stored)]
    if len(wanted) == len(stored):
        return row, notes
    rest = _counted(len(stored) - len(wanted), "other seed")
    if not wanted:
        return None, [f"{group} holds none of the seeds that were asked for, and {rest}."]
    return _of_seeds(row, wanted), [*notes, f"{group} holds {rest}, which were not asked for."]


def _untrained(group: Path, about: dict[str, Any]) -> list[str]:
    """Nothing, of a row that was never trained."""
    if (group / "provenance.json").exists():
        return [f"{group} was begun and holds no finished seed; reproduce the study once more."]
    if about.get("trained"):
        return [f"{group} was trained and is gone; restore it, or reproduce the study once more."]
    return []


def _check_identity(group: Path, about: dict[str, Any], summary: dict[str, Any]) -> None:
    """A row may not show the group of another method or environment."""
    for name, stored in (("environment", summary["env"]), ("algorithm", summary["algorithm"])):
        if about.get(name, stored) != stored:
            raise CanaryError(
                f"{group} is not the group of {about['variant']} (its {name} is {stored}, not "
                f"{about[name]}); restore it."
            )


def _of_seeds(row: Row, seeds: list[int]) -> Row:
    """The same row of some of its seeds."""
    units = read_units(row.group).only(tuple(seeds))
    final = row.final
    if final is not None:
        known = final.get("seeds", row.summary["seed_ids"])
        final = {"seeds": seeds} | {
            name: [values[known.index(seed)] for seed in seeds]
            for name, values in final.items()
            if name.endswith("_per_seed")
        }
    return replace(
        row,
        config=units.config,
        summary=summary_of(units),
        final=final,
        codes=_codes(row.group, seeds),
    )


def _final_file(group: Path) -> Path | None:
    paths = (group / f"{kind}.json" for kind in PER_SEED)
    return next((path for path in paths if path.exists()), None)


def _final(group: Path, stored: list[int]) -> Final:
    """The numbers of the final policies, if there are any, and whether they are exact."""
    path = _final_file(group)
    return (None, False) if path is None else (read_final(path, stored), path.stem == "exact")


def _codes(group: Path, seeds: list[int]) -> tuple[str, ...]:
    units = read_provenance(group)
    if units is None:
        return ("-",)
    known = (units[str(seed)].get("code") or "-" for seed in seeds)
    return tuple(sorted({code[:6] for codes in known for code in codes.split()}))


def _counted(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def kept_groups(results: Path, study: dict[str, Any]) -> list[str]:
    """Groups in the store that no row shows: other settings, or those of another version.

    Where the units are another study's, only groups of this study's own variants count."""
    shown = {(results / row["group"]).resolve() for row in study["rows"]}
    homes = {(results / row["group"]).resolve().parent for row in study["rows"]}
    variants = [name for row in study["rows"] for name in (row["variant"], *row.get("also", ()))]
    ours = re.compile(rf"(?:{'|'.join(map(re.escape, variants))})(?:-[0-9a-f]{{8}})?")
    own = results.resolve()
    return sorted(
        path.parent.name
        for home in homes | {own}
        for path in home.glob("*/config.json")
        if path.parent not in shown and (home == own or ours.fullmatch(path.parent.name))
    )
