"""The tables of a run: metrics.parquet, a row per seed and update, and episodes.parquet, a row per
seed and episode.

Both are written whole before each checkpoint. The manifest, which is written last, says how many
updates count: rows of later ones are of a run that was killed in between.
"""

import io
from pathlib import Path
from typing import Any, Literal

import polars as pl

from canary.errors import CanaryError
from canary.runs.files import damaged, read_bytes, write_atomically
from canary.runs.manifest import stored_manifest

Kind = Literal["metrics", "episodes"]
# The columns that every table has; algorithms add their metrics.
COLUMNS: dict[Kind, dict[str, Any]] = {
    "metrics": {"seed": pl.Int32, "iteration": pl.Int32, "steps": pl.Int64},
    "episodes": {
        "seed": pl.Int32,
        "iteration": pl.Int32,
        "environment": pl.Int32,
        "return": pl.Float32,
        "cost": pl.Float32,
        "length": pl.Int32,
        "terminated": pl.Boolean,
        "valid": pl.Boolean,
    },
}


def write_table(run: Path, kind: Kind, table: pl.DataFrame) -> None:
    buffer = io.BytesIO()
    table.sort("seed", "iteration", maintain_order=True).write_parquet(buffer)
    write_atomically(run / f"{kind}.parquet", buffer.getvalue())


def read_table(run: Path, kind: Kind) -> pl.DataFrame:
    """The rows of the updates that a run has done, by seed and iteration (and, within those, as they
    were written)."""
    manifest = stored_manifest(run)
    if not manifest["steps"]:
        return pl.DataFrame(schema=COLUMNS[kind])
    path, training = run / f"{kind}.parquet", manifest["config"]["training"]
    batch = training["environments"] * training["rollout_length"]
    try:
        table = pl.read_parquet(read_bytes(path))
        return table.filter(pl.col("iteration") < manifest["steps"] // batch)
    except FileNotFoundError:
        raise CanaryError(f"{path} is missing; restore it.") from None
    except (OSError, ValueError, pl.exceptions.PolarsError) as error:
        raise damaged(path, error) from error
