"""The store of results: trained seeds, reduced to the data of tables, figures and reports. No JAX.

    RESULTS/STUDY/study.json              the rows of the study, and the folder of each
    RESULTS/STUDY/ROW/row.json            the settings; for each seed its measures, its final policy
                                          and the code that trained it
    RESULTS/STUDY/ROW/blocks-HASH.parquet 48 blocks of training for each seed: counts and sums over
                                          episodes, means of update metrics
    RESULTS/STUDY/points.json             the numbers of a study without rows

A JSON file ends with the SHA-256 of its content, a table has it in its name; changed files are
refused. row.json is written after its table, so a kill between them leaves the old row.
"""

import hashlib
import io
from dataclasses import dataclass, replace
from os.path import normpath
from pathlib import Path
from typing import Any

import polars as pl

from canary.errors import CanaryError
from canary.reporting.results import Results
from canary.runs.files import make_folder, read_sealed, write_atomically, write_sealed


@dataclass(frozen=True)
class StoredStudy:
    """A study with its rows. An untrained row has no seeds."""

    folder: Path
    about: dict[str, Any]
    """study.json."""
    rows: list[Results]

    @property
    def shown(self) -> list[Results]:
        """The trained rows."""
        return [row for row in self.rows if row.seeds]

    @property
    def points(self) -> list[dict[str, Any]]:
        if points := read_points(self.folder):
            return points
        name = self.folder.name
        raise CanaryError(f"{self.folder} has no points.json; `canary reproduce {name}` makes it.")


def read_study(folder: Path) -> StoredStudy:
    """A study with the seeds that it names for its rows."""
    path = folder / "study.json"
    if not path.exists():
        raise CanaryError(
            f"{folder} has no study.json, so there is nothing to rebuild; `canary reproduce "
            f"{folder.name}` makes it."
        )
    study, rows = read_sealed(path), []
    for about in study["rows"]:
        row = read_row(Path(normpath(folder / about["folder"]))) or Results(about)
        seeds = {seed: row.seeds[seed] for seed in about["seeds"] if seed in row.seeds}
        blocks = row.blocks.filter(pl.col("seed").is_in(list(seeds))) if seeds else row.blocks
        rows.append(replace(row, about=about, seeds=seeds, blocks=blocks))
    return StoredStudy(folder, study, rows)


def read_row(folder: Path) -> Results | None:
    """All seeds of a folder; None if nothing is stored."""
    if not (folder / "row.json").exists():
        return None
    record = read_sealed(folder / "row.json")
    path = folder / str(record["blocks"])
    data = path.read_bytes() if path.exists() else b""
    if _name_of(data) != path.name:
        raise CanaryError(f"{path} is missing, or was changed since it was written; restore it.")
    seeds = {int(seed): one for seed, one in record["seeds"].items()}
    about = {"row": record["row"]}
    return Results(about, record["config"], int(record["steps"]), seeds, pl.read_parquet(data))


def _name_of(table: bytes) -> str:
    return f"blocks-{hashlib.sha256(table).hexdigest()[:16]}.parquet"


def read_points(folder: Path) -> list[dict[str, Any]]:
    """The points of a study without rows."""
    path = folder / "points.json"
    return read_sealed(path)["points"] if path.exists() else []


def add(folder: Path, results: Results) -> None:
    """Add seeds to the row of a folder."""
    blocks, seeds = results.blocks, results.seeds
    if (stored := read_row(folder)) is not None:
        kept = stored.blocks.filter(~pl.col("seed").is_in(list(seeds)))
        blocks = pl.concat([kept, blocks], how="diagonal_relaxed").sort("seed", "block")
        seeds = stored.seeds | seeds
    buffer = io.BytesIO()
    blocks.write_parquet(buffer, compression="zstd", statistics=False)
    data = buffer.getvalue()
    make_folder(folder)
    write_atomically(folder / _name_of(data), data)
    training = results.config["training"] | {"seeds": sorted(seeds)}
    content = {
        "row": folder.name,
        "config": results.config | {"training": training},
        "steps": results.steps,
        "blocks": _name_of(data),
        "seeds": {str(seed): seeds[seed] for seed in sorted(seeds)},
    }
    write_sealed(folder / "row.json", content)
    for path in folder.glob("blocks-*.parquet"):  # also those of a killed process
        if path.name != content["blocks"]:
            path.unlink()
