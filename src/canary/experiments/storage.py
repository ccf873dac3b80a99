"""The layout of a run directory, and files that appear whole or not at all.

    runs/IcyLake-canary-20260131-142530/
      config.json  manifest.json            how to repeat the run; what it is, where it ran, its status
      metrics/  episodes/                   part-<first>-<last>.parquet: rows of iterations [first, last)
      metrics.parquet  episodes.parquet     the parts joined, once the run has finished
      summary.json  checkpoints/

A part is written just before each checkpoint, and its name is the truth about it: rows outside [first, last)
do not count. So a run killed at any moment reads as if it had stopped at a checkpoint. No JAX here, and
polars only where tables are touched: `canary list` answers at once.
"""

import contextlib
import errno
import importlib.metadata
import io
import json
import os
import platform
import re
import shutil
import socket
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from canary.errors import CanaryError

if TYPE_CHECKING:
    import polars

Kind = Literal["metrics", "episodes"]
COLUMNS: dict[
    Kind, tuple[str, ...]
] = {  # what every table has; metrics add the floats their algorithm reports
    "metrics": ("seed", "iteration", "steps"),
    "episodes": ("seed", "iteration", "environment", "return", "cost", "length", "terminated", "valid"),
}


@dataclass(frozen=True)
class Headline:
    """What identifies a run at a glance; its manifest begins with it."""

    env: str
    algorithm: str
    seeds: int
    total_steps: int


@dataclass(frozen=True)
class RunRow:
    """One line of `canary list`; all but the path is unknown if the directory cannot be read."""

    path: str
    headline: Headline | None = None
    steps: int | None = None
    status: str = "unreadable"
    started: str = ""


def write_atomically(path: Path, data: bytes) -> None:
    """Give `path` this content, durably, or leave it as it was and raise a sentence."""
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        with open(temporary, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
        if os.name == "posix":  # a rename survives a power cut once its directory is flushed
            descriptor = os.open(path.parent, os.O_RDONLY)
            os.fsync(descriptor)
            os.close(descriptor)
    except OSError as error:
        raise _cannot_write(path, error) from error
    finally:
        with contextlib.suppress(
            OSError
        ):  # whatever stopped us, Ctrl-C included, leaves nothing half-written
            temporary.unlink(missing_ok=True)


def _cannot_write(path: Path, error: OSError) -> CanaryError:
    reason = error.strerror or str(error)
    return CanaryError(f"Cannot write {path} ({reason}); choose a place with room and write permission.")


def write_json(path: Path, value: dict[str, Any]) -> None:
    """Write a JSON object atomically; NaN and infinity, which JSON cannot hold, are a programming error."""
    write_atomically(path, (json.dumps(value, indent=2, allow_nan=False) + "\n").encode())


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object, or say which file is missing or damaged."""
    try:
        value = json.loads(path.read_bytes())
        if not isinstance(value, dict):
            raise ValueError("not a JSON object")
        return value
    except FileNotFoundError as error:
        raise CanaryError(f"{path} is missing; the directory is not a complete run.") from error
    except (OSError, ValueError, RecursionError) as error:
        raise CanaryError(f"{path} is damaged ({error}); restore it or start a new run.") from error


def create(root: Path, headline: Headline, config: dict, *, device: str, command: Sequence[str]) -> Path:
    """Make a new run directory below `root` and return it; an existing one is never touched."""
    started = datetime.now().astimezone()
    parts = (re.sub(r"[^A-Za-z0-9_.]+", "-", part).strip("-.") for part in (headline.env, headline.algorithm))
    name = f"{'-'.join(parts)}-{started:%Y%m%d-%H%M%S}"
    state = {"status": "running", "steps": 0, "started": started.isoformat(timespec="seconds")}
    machine = {"platform": platform.platform(), "cpu_count": os.cpu_count(), "device": device}
    origin = {"command": list(command), "process": process_identity(), "versions": _versions(), **machine}
    draft = root / f".{name}-{os.getpid()}"
    missing = [folder for folder in (root, *root.parents) if not folder.exists()]
    try:
        for folder in (*COLUMNS, "checkpoints"):
            (draft / folder).mkdir(parents=True)
        write_json(draft / "config.json", config)
        write_json(draft / "manifest.json", {**asdict(headline), **state, "finished": None, **origin})
        return _rename_to_free_name(draft, name)
    except BaseException as error:
        shutil.rmtree(draft, ignore_errors=True)
        for folder in missing:
            with contextlib.suppress(OSError):
                folder.rmdir()
        if isinstance(error, OSError):
            raise _cannot_write(root, error) from error
        raise


def _rename_to_free_name(draft: Path, name: str) -> Path:
    """Two runs may start in the same second: renaming onto a run fails, then the next name is tried."""
    path, number = draft.with_name(name), 1
    while True:
        try:
            if not path.exists():
                return draft.rename(path)
        except OSError as error:
            if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):
                raise
        path, number = draft.with_name(f"{name}-{number + 1}"), number + 1


def _versions() -> dict[str, str]:
    versions = {"python": platform.python_version()}
    for distribution in ("canary-rl", "jax", "jaxlib", "numpy"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[distribution.removesuffix("-rl")] = importlib.metadata.version(distribution)
    return versions


def update_manifest(run: Path, **changes: Any) -> None:
    """Change fields: `steps` at a checkpoint, `process` and `status` on resuming, `status` at the end."""
    write_json(run / "manifest.json", read_json(run / "manifest.json") | changes)


def process_identity() -> dict[str, Any]:
    """This process, with its start time because process numbers are used again."""
    return {"pid": os.getpid(), "hostname": socket.gethostname(), "start_time": _start_time(os.getpid())}


def _start_time(pid: int) -> str | None:
    """When a process started, in clock ticks since boot; None if it is gone, a zombie, or unknown."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else fields[19]


def _is_alive(process: dict[str, Any]) -> bool:
    if process["hostname"] != socket.gethostname() or sys.platform == "win32":
        return True  # no (harmless) way to ask: its word is all there is
    if process["start_time"] is not None:
        return _start_time(int(process["pid"])) == process["start_time"]
    try:
        os.kill(int(process["pid"]), 0)
        return True
    except OSError as error:
        return error.errno == errno.EPERM


def run_status(manifest: dict[str, Any]) -> str:
    """running, interrupted, finished or failed."""
    is_gone = manifest["status"] == "running" and not _is_alive(manifest["process"])
    return "interrupted" if is_gone else str(manifest["status"])


def append_part(run: Path, kind: Kind, frame: "polars.DataFrame", first: int, last: int) -> None:
    """Store the rows of iterations [first, last)."""
    if not 0 <= first < last:
        raise ValueError(f"a part needs 0 <= first < last, got [{first}, {last})")
    if not set(COLUMNS[kind]) <= set(frame.columns):
        raise ValueError(f"{kind} need the columns {COLUMNS[kind]}, got {frame.columns}")
    write_atomically(run / kind / f"part-{first:08d}-{last:08d}.parquet", _to_parquet(frame))


def discard_after(run: Path, iteration: int) -> None:
    """Forget iterations >= `iteration`: a run that resumes from that checkpoint makes them again."""
    import polars as pl

    before = pl.col("iteration") < iteration
    for kind in COLUMNS:
        joined = run / f"{kind}.parquet"
        if joined.exists():
            write_atomically(joined, _to_parquet(_from_parquet(joined).filter(before)))
        for first, last, path in _parts(run, kind):
            if first >= iteration:
                path.unlink()
            elif last > iteration:
                # The rename alone makes it right (the name is the truth); the rows are cut for other readers.
                kept = path.rename(path.with_name(f"part-{first:08d}-{iteration:08d}.parquet"))
                write_atomically(kept, _to_parquet(_from_parquet(kept).filter(before)))


def read(run: Path, kind: Kind) -> "polars.DataFrame":
    """All rows of a run, by seed and iteration (and, within those, as they were written)."""
    import polars as pl

    frames, joined, covered = [pl.DataFrame(schema=COLUMNS[kind])], run / f"{kind}.parquet", 0
    if joined.exists():
        frames.append(_from_parquet(joined))
        # A kill may have left parts that are already joined; they must not count twice.
        covered = 0 if frames[-1].is_empty() else frames[-1].select(pl.col("iteration").max()).item() + 1
    for first, last, path in _parts(run, kind):
        if first >= covered:
            frames.append(_from_parquet(path).filter(pl.col("iteration").is_between(first, last - 1)))
    return pl.concat(frames, how="diagonal_relaxed").sort("seed", "iteration", maintain_order=True)


def compact(run: Path) -> None:
    """Join the parts of a finished run into metrics.parquet and episodes.parquet."""
    for kind in COLUMNS:
        write_atomically(run / f"{kind}.parquet", _to_parquet(read(run, kind)))
        for _, _, path in _parts(run, kind):
            path.unlink()


def _parts(run: Path, kind: Kind) -> list[tuple[int, int, Path]]:
    """(first, last, path) in order; whatever is not named like a part is none."""
    paths = ((re.fullmatch(r"part-(\d+)-(\d+)\.parquet", path.name), path) for path in (run / kind).glob("*"))
    return sorted((int(match[1]), int(match[2]), path) for match, path in paths if match)


def _to_parquet(frame: "polars.DataFrame") -> bytes:
    buffer = io.BytesIO()
    frame.write_parquet(buffer)
    return buffer.getvalue()


def _from_parquet(path: Path) -> "polars.DataFrame":
    import polars as pl

    try:
        return pl.read_parquet(path.read_bytes())
    except (OSError, pl.exceptions.PolarsError) as error:
        raise CanaryError(f"{path} is damaged ({str(error).partition(chr(10))[0]}); restore it.") from error


def list_runs(root: Path) -> list[RunRow]:
    """The runs below `root`, newest first; broken ones are shown as such and never raise."""
    marks = ("config.json", "manifest.json", "checkpoints")
    folders = [path for path in root.iterdir() if path.name[0] != "."] if root.is_dir() else []
    rows = [_row(path) for path in folders if any((path / mark).exists() for mark in marks)]
    return sorted(rows, key=lambda row: (row.started, row.path), reverse=True)


def _row(path: Path) -> RunRow:
    try:
        read_json(path / "config.json")
        record = read_json(path / "manifest.json")
        seeds, total_steps = int(record["seeds"]), int(record["total_steps"])
        headline = Headline(str(record["env"]), str(record["algorithm"]), seeds, total_steps)
        return RunRow(str(path), headline, int(record["steps"]), run_status(record), str(record["started"]))
    except (ValueError, KeyError, TypeError):
        return RunRow(str(path))


def find_run(name: str, root: Path) -> Path:
    """The run of that path or name, or the newest for "latest"; else a sentence with the nearest name."""
    for path in (Path(name), root / name):
        if (path / "config.json").is_file():
            return path
    if Path(name).is_dir():
        raise CanaryError(f'"{name}" is a directory but not a run: it has no config.json; see `canary list`.')
    rows = list_runs(root)
    if name == "latest" and (readable := [row for row in rows if row.headline]):
        return Path(readable[0].path)
    names = [Path(row.path).name for row in rows]
    if not names:
        raise CanaryError(f'There is no run "{name}" nor any other in {root}; start one with `canary train`.')
    near = (get_close_matches(Path(name).name, names, n=1, cutoff=0.3) or names)[0]
    raise CanaryError(f'There is no run "{name}" in {root}; did you mean "{near}"?')
