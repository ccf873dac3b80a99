"""The store of results: trained seeds, thinned to what tables, figures and reports need. No JAX.

    RESULTS/STUDY/study.json              which rows the study shows, and the folder of each
    RESULTS/STUDY/ROW/row.json            the settings; of each seed its measures, its final policy
                                          and the code that trained it
    RESULTS/STUDY/ROW/blocks-HASH.parquet of each seed, 48 blocks of training: counts and sums over
                                          its episodes, means of its update metrics
    RESULTS/STUDY/points.json             the numbers of a study without rows

Every JSON file is sealed with the SHA-256 of its content, and the name of a table has its own. A
file that was changed does not match and is not shown. row.json is written after its table, so a
process that is killed leaves the row as it was.
"""

import hashlib
import io
from dataclasses import dataclass, field
from os.path import normpath
from pathlib import Path
from typing import Any

import polars as pl

from canary.constraints import One, from_dict, one_cost
from canary.errors import CanaryError
from canary.reporting.blocks import thin
from canary.reporting.summary import measure_seed
from canary.runs.files import make_folder, read_sealed, write_atomically, write_sealed


@dataclass(frozen=True)
class StoredRow:
    """A row of a study with its results. One that is not shown has no seeds."""

    about: dict[str, Any]
    """Its entry in study.json."""
    config: dict[str, Any] = field(default_factory=dict)
    steps: int = 0
    seeds: dict[int, dict[str, Any]] = field(default_factory=dict)
    """The measures of each seed, its final policy, and the code that trained it."""
    blocks: pl.DataFrame = field(default_factory=pl.DataFrame)
    """Blocks of training of these seeds (`reporting.blocks.thin`)."""
    missing: str = "not trained"
    """Why it is not shown."""

    @property
    def name(self) -> str:
        return self.about["row"]

    @property
    def environment(self) -> str:
        return self.about["environment"]

    @property
    def label(self) -> str:
        """Method, preset and overrides."""
        changed = "".join(f", {one.rpartition('.')[2]}" for one in self.about["overrides"])
        return f"{self.about['algorithm']} (`{self.about['preset']}`{changed})"

    @property
    def constraint(self) -> One:
        return one_cost(from_dict(self.config["constraint"]), "A study")

    @property
    def epsilon(self) -> float | None:
        return None if self.constraint.kind == "mean" else self.constraint.share

    def each(self, name: str) -> list[Any]:
        """A measure of every seed that has it."""
        return [one[name] for one in self.seeds.values() if one[name] is not None]

    def pairs(self, first: str, second: str) -> list[tuple[float, float]]:
        """Two measures of every seed that has both."""
        found = [(one[first], one[second]) for one in self.seeds.values()]
        return [pair for pair in found if None not in pair]

    def final(self, name: str) -> list[Any]:
        """A number of the final policy of every seed that has one."""
        found = (one.get("final") or {} for one in self.seeds.values())
        return [one[name] for one in found if one.get(name) is not None]


@dataclass(frozen=True)
class StoredStudy:
    """A study with its rows."""

    folder: Path
    about: dict[str, Any]
    """study.json."""
    rows: list[StoredRow]
    notes: list[str]
    """Why rows are not shown."""

    @property
    def shown(self) -> list[StoredRow]:
        return [row for row in self.rows if row.seeds]

    @property
    def points(self) -> list[dict[str, Any]]:
        if points := read_points(self.folder):
            return points
        name = self.folder.name
        raise CanaryError(f"{self.folder} has no points.json; `canary reproduce {name}` makes it.")


def read_study(folder: Path) -> StoredStudy:
    """A study with its rows; what cannot be read is named in the notes."""
    path = folder / "study.json"
    if not path.exists():
        raise CanaryError(
            f"{folder} has no study.json, so there is nothing to rebuild; `canary reproduce "
            f"{folder.name}` makes it."
        )
    study, rows, notes = read_sealed(path), [], []
    for about in study["rows"]:
        try:
            rows.append(_stored(Path(normpath(folder / about["folder"])), about))
        except CanaryError as error:
            rows.append(StoredRow(about, missing="not shown"))
            notes.append(str(error))
    return StoredStudy(folder, study, rows, notes)


def _stored(folder: Path, about: dict[str, Any]) -> StoredRow:
    record = read_row(folder)
    if record is None:
        return StoredRow(about)
    known = {seed: record["seeds"].get(str(seed)) for seed in about["seeds"]}
    seeds = {seed: one for seed, one in known.items() if one}
    blocks = read_blocks(folder, record).filter(pl.col("seed").is_in(list(seeds)))
    return StoredRow(about, record["config"], int(record["steps"]), seeds, blocks)


def read_row(folder: Path) -> dict[str, Any] | None:
    """row.json; None where nothing was ever stored."""
    path = folder / "row.json"
    return read_sealed(path) if path.exists() else None


def read_blocks(folder: Path, record: dict[str, Any]) -> pl.DataFrame:
    path = folder / str(record["blocks"])
    data = path.read_bytes() if path.exists() else b""
    if _name_of(data) != path.name:
        raise CanaryError(f"{path} is missing, or was changed since it was written; restore it.")
    return pl.read_parquet(data)


def _name_of(table: bytes) -> str:
    return f"blocks-{hashlib.sha256(table).hexdigest()[:16]}.parquet"


def read_points(folder: Path) -> list[dict[str, Any]]:
    """The points of a study without rows."""
    path = folder / "points.json"
    return read_sealed(path)["points"] if path.exists() else []


def add(
    folder: Path,
    config: dict[str, Any],
    tables: tuple[pl.DataFrame, pl.DataFrame],
    steps: int,
    known: dict[int, dict[str, Any]],
) -> None:
    """Add seeds to the row of a folder, from their tables of episodes and updates. `known` has the
    rest of each seed: `final`, `code`, `versions`, `train_seconds`."""
    episodes, metrics = (table.filter(pl.col("seed").is_in(list(known))) for table in tables)
    blocks = thin(episodes, metrics, config, steps)
    seeds = {
        seed: measure_seed(config, episodes, metrics, steps, seed) | more
        for seed, more in known.items()
    }
    if (record := read_row(folder)) is not None:
        kept = read_blocks(folder, record).filter(~pl.col("seed").is_in(list(seeds)))
        blocks = pl.concat([kept, blocks], how="diagonal_relaxed").sort("seed", "block")
        seeds = {int(seed): one for seed, one in record["seeds"].items()} | seeds
    buffer = io.BytesIO()
    blocks.write_parquet(buffer, compression="zstd", statistics=False)
    data = buffer.getvalue()
    make_folder(folder)
    write_atomically(folder / _name_of(data), data)
    content = {
        "row": folder.name,
        "config": config | {"training": config["training"] | {"seeds": sorted(seeds)}},
        "steps": steps,
        "blocks": _name_of(data),
        "seeds": {str(seed): seeds[seed] for seed in sorted(seeds)},
    }
    write_sealed(folder / "row.json", content)
    for path in folder.glob("blocks-*.parquet"):  # also what a killed process left
        if path.name != content["blocks"]:
            path.unlink()
