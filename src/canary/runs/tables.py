"""The tables of a run: parts while it trains, joined when it has finished, each with its digest in
the manifest.

A table counts if the manifest lists it, and only with the content that the manifest states. It is
written first and listed then; what leaves the list is removed afterwards. So whatever kills the
process between two writes, the tables that are listed are whole, and what is not listed is swept
away by whoever trains the run next.
"""

import hashlib
import io
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from canary.errors import CanaryError
from canary.runs.files import read_bytes, write_atomically
from canary.runs.manifest import stored_manifest, update_manifest

if TYPE_CHECKING:
    import polars

Kind = Literal["metrics", "episodes"]
# What every table has; metrics add the floats their algorithm reports
COLUMNS: dict[Kind, dict[str, str]] = {
    "metrics": {"seed": "Int32", "iteration": "Int32", "steps": "Int64"},
    "episodes": {
        "seed": "Int32", "iteration": "Int32", "environment": "Int32", "return": "Float32", "cost": "Float32",
        "length": "Int32", "terminated": "Boolean", "valid": "Boolean",
    },
}  # fmt: skip
LARGEST_TABLE = 1 << 34
PATIENCE = 3  # whoever trains the run may join its parts while they are read


def append_parts(run: Path, frames: "dict[Kind, polars.DataFrame]", first: int, last: int) -> None:
    """Store the rows of iterations [first, last) of several tables; all are listed at once."""
    if not 0 <= first < last:
        raise ValueError(f"a part needs 0 <= first < last, got [{first}, {last})")
    for kind, frame in frames.items():
        if not set(COLUMNS[kind]) <= set(frame.columns):
            raise ValueError(f"{kind} need the columns {list(COLUMNS[kind])}, got {frame.columns}")
    written = {
        _part(kind, first, last): _write(run, _part(kind, first, last), frames[kind])
        for kind in frames
    }
    update_manifest(run, tables=_listed(run) | written)


def discard_after(run: Path, iteration: int) -> None:
    """Forget iterations >= `iteration`: a run that resumes from that checkpoint makes them
    again."""
    import polars as pl

    before, listed, kept = pl.col("iteration") < iteration, _listed(run), {}
    for name, digest in listed.items():
        kind, first, last = _meaning(name)
        if last is not None and last <= iteration:
            kept[name] = digest
        elif first < iteration:  # cut it; a joined table becomes a part again
            frame = _read(run, kind, name, digest).filter(before)
            whole = last is None and frame.height == _read(run, kind, name, digest).height
            place = name if whole else _part(kind, first, iteration)
            kept[place] = digest if whole else _write(run, place, frame)
    update_manifest(run, tables=kept)
    sweep(run)


def read(run: Path, kind: Kind) -> "polars.DataFrame":
    """All rows of a run, by seed and iteration (and, within those, as they were written)."""
    for attempt in range(PATIENCE):
        listed = _listed(run)
        try:
            return _join(run, kind, listed)
        except CanaryError:  # whoever trains the run may just have joined its parts
            if attempt == PATIENCE - 1 or _listed(run) == listed:
                raise
    raise AssertionError


def compact(run: Path) -> None:
    """Join the parts of a finished run into metrics.parquet and episodes.parquet."""
    listed = _listed(run)
    joined = {
        f"{kind}.parquet": _write(run, f"{kind}.parquet", _join(run, kind, listed))
        for kind in COLUMNS
    }
    update_manifest(run, tables=joined)
    sweep(run)


def sweep(run: Path) -> None:
    """Remove what is named like a table and is not listed: a kill left it behind."""
    listed = _listed(run)
    for name in _found(run):
        if name not in listed:
            (run / name).unlink(missing_ok=True)


def adopt(run: Path, config: dict[str, Any]) -> None:
    """Seal a run of an older version: its configuration and tables as they are now."""
    if "config" not in stored_manifest(run):
        digests = {
            name: hashlib.sha256(read_bytes(run / name, LARGEST_TABLE)).hexdigest()
            for name in _found(run)
        }
        update_manifest(run, config=config, tables=digests)


def _found(run: Path) -> list[str]:
    """The files that are named like tables, joined ones first."""
    joined = [f"{kind}.parquet" for kind in COLUMNS if (run / f"{kind}.parquet").exists()]
    parts = [
        f"{kind}/{path.name}" for kind in COLUMNS for path in (run / kind).glob("part-*.parquet")
    ]
    return joined + sorted(
        name for name in parts if re.fullmatch(r"\w+/part-\d+-\d+\.parquet", name)
    )


def _listed(run: Path) -> dict[str, str | None]:
    """The tables that count, with their digests; of a run of an older version all there are,
    without."""
    tables = stored_manifest(run).get("tables")
    if tables is None:
        return dict.fromkeys(_found(run))
    for name in tables:
        _meaning(name)
    return dict(tables)


def _meaning(name: str) -> tuple[Kind, int, int | None]:
    """The kind of a table and the iterations [first, last) that it holds; None: all there were."""
    match = re.fullmatch(r"(metrics|episodes)(?:/part-(\d{8,})-(\d{8,}))?\.parquet", name)
    if match is None:
        raise CanaryError(
            f"The manifest lists {name!r:.80}, which is no table of a run; restore it."
        )
    kind: Kind = "metrics" if match[1] == "metrics" else "episodes"
    return kind, int(match[2] or 0), None if match[3] is None else int(match[3])


def _part(kind: Kind, first: int, last: int) -> str:
    return f"{kind}/part-{first:08d}-{last:08d}.parquet"


def _join(run: Path, kind: Kind, listed: dict[str, str | None]) -> "polars.DataFrame":
    import polars as pl

    schema = {name: getattr(pl, dtype) for name, dtype in COLUMNS[kind].items()}
    frames, covered = [pl.DataFrame(schema=schema)], 0
    for name, digest in sorted(
        listed.items(), key=lambda item: (_meaning(item[0])[2] is not None, item[0])
    ):
        of, first, last = _meaning(name)
        if (
            of != kind or first < covered
        ):  # an older version may have left parts that are already joined
            continue
        frame = _read(run, kind, name, digest)
        if last is None:
            covered = (
                0 if frame.is_empty() else int(frame.select(pl.col("iteration").max()).item()) + 1
            )
        else:  # the name is the truth about a part
            frame = frame.filter(pl.col("iteration").is_between(first, last - 1))
        frames.append(frame)
    return pl.concat(frames, how="diagonal_relaxed").sort("seed", "iteration", maintain_order=True)


def _write(run: Path, name: str, frame: "polars.DataFrame") -> str:
    """Write a table; returns its digest."""
    buffer = io.BytesIO()
    frame.write_parquet(buffer)
    write_atomically(run / name, buffer.getvalue(), within=run)
    return hashlib.sha256(buffer.getvalue()).hexdigest()


def _read(run: Path, kind: Kind, name: str, digest: str | None) -> "polars.DataFrame":
    """A table whose bytes are the listed ones; polars itself would read other numbers out of a
    damaged file."""
    import polars as pl

    path = run / name
    try:
        data = read_bytes(path, LARGEST_TABLE)
        if digest is not None and hashlib.sha256(data).hexdigest() != digest:
            raise ValueError("its content does not match its digest in the manifest")
        frame = pl.read_parquet(data)
        missing = [column for column in COLUMNS[kind] if column not in frame.columns]
        if missing:
            raise ValueError(f"it has no column {missing[0]!r}")
        return frame
    except FileNotFoundError:
        raise CanaryError(f"{path} is missing, which the manifest lists; restore it.") from None
    except (OSError, ValueError, pl.exceptions.PolarsError) as error:
        raise _damaged(path, error) from error
    except BaseException as error:  # a panic of polars is no Exception
        if type(error).__name__ == "PanicException":
            raise _damaged(path, error) from None
        raise


def _damaged(path: Path, error: BaseException) -> CanaryError:
    return CanaryError(f"{path} is damaged ({str(error).partition(chr(10))[0]:.200}); restore it.")
