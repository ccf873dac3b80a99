"""The tables of a run: parts while it trains, joined when it has finished.

A table counts if the manifest lists it, and only with the digest that the manifest states. It is
written first and listed then; what leaves the list is removed afterwards. So the listed tables are
whole whatever kills the process, and `discard_after` removes the rest when the run goes on.
"""

import hashlib
import io
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from canary.errors import CanaryError
from canary.runs.files import damaged, read_bytes, write_atomically
from canary.runs.manifest import stored_manifest, update_manifest

if TYPE_CHECKING:
    import polars

Kind = Literal["metrics", "episodes"]
# The columns that every table has; algorithms add their metrics.
COLUMNS: dict[Kind, dict[str, str]] = {
    "metrics": {"seed": "Int32", "iteration": "Int32", "steps": "Int64"},
    "episodes": {
        "seed": "Int32", "iteration": "Int32", "environment": "Int32", "return": "Float32", "cost": "Float32",
        "length": "Int32", "terminated": "Boolean", "valid": "Boolean",
    },
}  # fmt: skip
NAME = re.compile(r"(metrics|episodes)(?:/part-(\d{8,})-(\d{8,}))?\.parquet")
PATIENCE = 3  # the trainer of the run may join its parts while they are read


def append_parts(run: Path, frames: "dict[Kind, polars.DataFrame]", first: int, last: int) -> None:
    """Store the rows of iterations [first, last) of several tables; all are listed at once."""
    names = {_part(kind, first, last): frame for kind, frame in frames.items()}
    written = {name: _write(run, name, frame) for name, frame in names.items()}
    update_manifest(run, tables=stored_manifest(run)["tables"] | written)


def discard_after(run: Path, iteration: int) -> None:
    """Remove iterations >= `iteration`, which a resumed run makes again, and unlisted files."""
    import polars as pl

    manifest, kept = stored_manifest(run), {}
    for name, digest in manifest["tables"].items():
        kind, first, last = _parse(name)
        if last is not None and last <= iteration:
            kept[name] = digest
        elif first < iteration:  # cut it; a joined table becomes a part again
            whole = _read(run, manifest, name)
            rows = whole.filter(pl.col("iteration") < iteration)
            if last is None and rows.height == whole.height:
                kept[name] = digest
            else:
                place = _part(kind, first, iteration)
                kept[place] = _write(run, place, rows)
    update_manifest(run, tables=kept)
    _remove_unlisted(run, kept)


def compact(run: Path) -> None:
    """Join the parts of a finished run into metrics.parquet and episodes.parquet."""
    manifest = stored_manifest(run)
    joined = {
        f"{kind}.parquet": _write(run, f"{kind}.parquet", _join(run, manifest, kind))
        for kind in COLUMNS
    }
    update_manifest(run, tables=joined)
    _remove_unlisted(run, joined)


def read(run: Path, kind: Kind) -> "polars.DataFrame":
    """All rows of a run, by seed and iteration (and, within those, as they were written)."""
    for attempt in range(PATIENCE):
        manifest = stored_manifest(run)
        try:
            return _join(run, manifest, kind)
        except CanaryError:
            unchanged = stored_manifest(run)["tables"] == manifest["tables"]
            if attempt == PATIENCE - 1 or unchanged:
                raise
    raise AssertionError


def _join(run: Path, manifest: dict[str, Any], kind: Kind) -> "polars.DataFrame":
    import polars as pl

    names = [name for name in manifest["tables"] if _parse(name)[0] == kind]
    schema = {name: getattr(pl, dtype) for name, dtype in COLUMNS[kind].items()}
    frames = [_read(run, manifest, name) for name in sorted(names)]
    frames = frames or [pl.DataFrame(schema=schema)]
    return pl.concat(frames, how="diagonal_relaxed").sort("seed", "iteration", maintain_order=True)


def _parse(name: str) -> tuple[Kind, int, int | None]:
    """The kind of a table and the iterations [first, last) that it holds; None: to the end."""
    match = NAME.fullmatch(name)
    if match is None:
        raise CanaryError(f"The manifest lists {name!r:.80}, which is not a table; restore it.")
    kind: Kind = "metrics" if match[1] == "metrics" else "episodes"
    return kind, int(match[2] or 0), None if match[3] is None else int(match[3])


def _part(kind: Kind, first: int, last: int) -> str:
    return f"{kind}/part-{first:08d}-{last:08d}.parquet"


def _remove_unlisted(run: Path, listed: dict[str, str]) -> None:
    for kind in COLUMNS:
        for path in (run / f"{kind}.parquet", *(run / kind).glob("part-*.parquet")):
            if path.relative_to(run).as_posix() not in listed:
                path.unlink(missing_ok=True)


def _write(run: Path, name: str, frame: "polars.DataFrame") -> str:
    """Write a table; returns its digest."""
    buffer = io.BytesIO()
    frame.write_parquet(buffer)
    write_atomically(run / name, buffer.getvalue(), within=run)
    return hashlib.sha256(buffer.getvalue()).hexdigest()


def _read(run: Path, manifest: dict[str, Any], name: str) -> "polars.DataFrame":
    """A table with the listed digest; polars alone would read wrong numbers from a damaged file."""
    import polars as pl

    path, most = run / name, manifest["seeds"] * manifest["total_steps"]
    try:
        data = read_bytes(path)
        if hashlib.sha256(data).hexdigest() != manifest["tables"][name]:
            raise ValueError("its content does not match its digest in the manifest")
        rows = pl.scan_parquet(io.BytesIO(data)).select(pl.len()).collect().item()
        if rows > most:  # a step ends one episode at most; a small file can hold billions of rows
            raise ValueError(f"it has {rows:,} rows, and the run has {most:,} steps")
        return pl.read_parquet(data)
    except FileNotFoundError:
        raise CanaryError(f"{path} is missing, which the manifest lists; restore it.") from None
    except (OSError, ValueError, pl.exceptions.PolarsError) as error:
        raise damaged(path, error) from error
