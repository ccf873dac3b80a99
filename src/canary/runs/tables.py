"""The tables of a run: metrics.parquet has a row per seed and update, episodes.parquet a row per
seed and episode.

Both are written whole before each checkpoint, and the manifest last. Rows of updates beyond the
manifest's number come from a run that was killed between the writes; they are ignored.
"""

import io
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import polars as pl

from canary.errors import CanaryError
from canary.runs.directory import stored_manifest
from canary.runs.files import damaged, read_bytes, write_atomically

if TYPE_CHECKING:
    from canary.types import EpisodeEnds

Kind = Literal["metrics", "episodes"]
# The columns of every table; algorithms add their metrics.
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


def metrics_rows(
    metrics: dict[str, np.ndarray], seeds: Sequence[int], first: int, batch: int
) -> pl.DataFrame:
    """A row per seed and update from arrays [seed, update]; `first` is the first update."""
    count = next(iter(metrics.values())).shape[1]
    update = np.tile(np.arange(first, first + count), len(seeds))
    columns = {"seed": np.repeat(seeds, count), "iteration": update, "steps": (update + 1) * batch}
    columns |= {name: value.reshape(-1) for name, value in metrics.items()}
    return pl.DataFrame(columns, schema_overrides=COLUMNS["metrics"])


def episode_rows(ends: "EpisodeEnds", seeds: Sequence[int], first: int) -> pl.DataFrame:
    """A row per episode that ended, in order of time, from arrays [seed, update, time, lane]."""
    seed, update, _, lane = where = np.nonzero(np.asarray(ends.ended))
    columns = {"seed": np.asarray(seeds)[seed], "iteration": first + update, "environment": lane}
    values = {"return": ends.reward, "cost": ends.cost, "length": ends.length}
    values |= {"terminated": ends.terminated, "valid": ends.valid}
    columns |= {name: np.asarray(value)[where] for name, value in values.items()}
    whole = dict.fromkeys(("seed", "iteration", "environment"), pl.Int32)
    return pl.DataFrame(columns, schema_overrides=whole)


def write_table(run: Path, kind: Kind, table: pl.DataFrame) -> None:
    buffer = io.BytesIO()
    table.sort("seed", "iteration", maintain_order=True).write_parquet(buffer)
    write_atomically(run / f"{kind}.parquet", buffer.getvalue())


def read_table(run: Path, kind: Kind) -> pl.DataFrame:
    """The rows of the updates that a run has done, sorted by seed and iteration."""
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
