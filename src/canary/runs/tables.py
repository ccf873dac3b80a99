"""The tables of a run: parts while it trains, joined when it has finished.

A table counts if the manifest lists it, and only with the digest that the manifest states. It is
written first and listed then; what leaves the list is removed afterwards. So the listed tables are
whole whatever kills the process, and `discard_after` removes the rest when the run resumes.
"""

import hashlib
import io
import re
from pathlib import Path
from typing import Any, Literal

import polars as pl

from canary.errors import CanaryError
from canary.runs.files import damaged, read_bytes, write_atomically
from canary.runs.manifest import stored_manifest, update_manifest

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
NAME = re.compile(r"(metrics|episodes)(?:/part-(\d{8,})-(\d{8,}))?\.parquet")


def append_parts(run: Path, frames: dict[Kind, pl.DataFrame], first: int, last: int) -> None:
    """Store the rows of iterations [first, last) of several tables; all are listed at once."""
    written = dict(_write(run, _part(kind, first, last), frame) for kind, frame in frames.items())
    update_manifest(run, tables=stored_manifest(run)["tables"] | written)


def discard_after(run: Path, iteration: int) -> None:
    """Remove iterations >= `iteration`, which a resumed run makes again, and unlisted files."""
    manifest, kept = stored_manifest(run), {}
    for name, digest in manifest["tables"].items():
        kind, first, last = _parse(name)
        if last is not None and last <= iteration:
            kept[name] = digest
        elif first < iteration:  # cut it; a joined table becomes a part again
            rows = _read(run, manifest, name).filter(pl.col("iteration") < iteration)
            kept |= [_write(run, _part(kind, first, iteration), rows)]
    _list_only(run, kept)


def compact(run: Path) -> None:
    """Join the parts of a finished run into metrics.parquet and episodes.parquet."""
    manifest = stored_manifest(run)
    joined = [_write(run, f"{kind}.parquet", _join(run, manifest, kind)) for kind in COLUMNS]
    _list_only(run, dict(joined))


def read_table(run: Path, kind: Kind) -> pl.DataFrame:
    """All rows of a run, by seed and iteration (and, within those, as they were written)."""
    manifest = stored_manifest(run)
    try:
        return _join(run, manifest, kind)
    except CanaryError:  # the process that trains the run may have replaced its tables meanwhile
        if stored_manifest(run)["tables"] == manifest["tables"]:
            raise
        return _join(run, stored_manifest(run), kind)


def _join(run: Path, manifest: dict[str, Any], kind: Kind) -> pl.DataFrame:
    names = sorted(name for name in manifest["tables"] if _parse(name)[0] == kind)
    frames = [_read(run, manifest, name) for name in names] or [pl.DataFrame(schema=COLUMNS[kind])]
    return pl.concat(frames, how="diagonal_relaxed").sort("seed", "iteration", maintain_order=True)


def _parse(name: str) -> tuple[str, int, int | None]:
    """The kind of a table and the iterations [first, last) that it holds; None: to the end."""
    match = NAME.fullmatch(name)
    if match is None:
        raise CanaryError(f"The manifest lists {name!r:.80}, which is not a table; restore it.")
    return match[1], int(match[2] or 0), None if match[3] is None else int(match[3])


def _part(kind: str, first: int, last: int) -> str:
    return f"{kind}/part-{first:08d}-{last:08d}.parquet"


def _list_only(run: Path, listed: dict[str, str]) -> None:
    """Make these the tables of the run, and remove the others."""
    update_manifest(run, tables=listed)
    for kind in COLUMNS:
        for path in (run / f"{kind}.parquet", *(run / kind).glob("part-*.parquet")):
            if path.relative_to(run).as_posix() not in listed:
                path.unlink(missing_ok=True)


def _write(run: Path, name: str, frame: pl.DataFrame) -> tuple[str, str]:
    """Write a table; returns its name and digest."""
    buffer = io.BytesIO()
    frame.write_parquet(buffer)
    write_atomically(run / name, buffer.getvalue())
    return name, hashlib.sha256(buffer.getvalue()).hexdigest()


def _read(run: Path, manifest: dict[str, Any], name: str) -> pl.DataFrame:
    """A table with the listed digest; polars alone would read wrong numbers from a damaged file."""
    path = run / name
    try:
        data = read_bytes(path)
        if hashlib.sha256(data).hexdigest() != manifest["tables"][name]:
            raise ValueError("its content does not match its digest in the manifest")
        rows = pl.scan_parquet(io.BytesIO(data)).select(pl.len()).collect().item()
        steps = manifest.get("extended_steps") or manifest["total_steps"]
        if rows > steps * manifest["seeds"]:  # a few bytes can say a billion rows
            raise ValueError(f"it has {rows:,} rows, more than the run has steps")
        return pl.read_parquet(data)
    except FileNotFoundError:
        raise CanaryError(f"{path} is missing, which the manifest lists; restore it.") from None
    except (OSError, ValueError, pl.exceptions.PolarsError) as error:
        raise damaged(path, error) from error
