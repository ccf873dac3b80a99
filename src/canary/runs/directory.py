"""A run directory: its manifest, its lock (one process trains it), and the search for runs.

    runs/IcyLake-canary-20260131-142530/
      manifest.json                         what the run is and how to repeat it, where it ran, its status
      metrics.parquet  episodes.parquet     a row per update and a row per episode of every seed
      checkpoints/                          the newest two states, and the kept ones
      summary.json  training.png            results of training; their figure
      evaluation.json                       the final policies on fresh episodes
      .lock                                 locked while a process trains it
      certificate.json  .html  best.json    after `canary certify`
      exports/  video.gif                   after `canary export`, `canary evaluate --video`
      log.csv  tensorboard/  wandb/         with `--log`

The manifest has the digest of its content, so changes are noticed. The kernel releases the lock when
its process ends for any reason. Neither JAX nor polars is imported here, so `canary list` is fast.
"""

import contextlib
import hashlib
import importlib.metadata
import itertools
import platform
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from canary.errors import CanaryError, nearest
from canary.runs.files import cannot_write, read_sealed, reason_of, write_sealed

NAME, LOCK = "manifest.json", ".lock"
LOCK_SECONDS = 1.0  # wait while `is_held` takes the lock for an instant
# The code that determines the numbers of a run.
MATHEMATICS = (
    "types.py",
    "numerics",
    "environments",
    "networks.py",
    "rollout.py",
    "algorithms",
    "training.py",
)


def create(
    root: Path,
    config: dict[str, Any],
    steps: int,
    *,
    name: str | None = None,
    fill: Callable[[Path], None] = lambda run: None,
    **about: Any,
) -> Path:
    """Make a new run directory below `root` and return it; existing ones are never changed.

    `steps` are planned per seed. `fill` writes the files that must exist before the manifest.
    `about` replaces entries of the manifest.
    """
    started = datetime.now().astimezone()
    env, algorithm = config["environment"]["name"], config["algorithm"]["name"]
    manifest = {
        "env": env,
        "algorithm": algorithm,
        "seeds": len(config["training"]["seeds"]),
        "total_steps": steps,
        "log": [],
        "status": "running",
        "steps": 0,
        "started": started.isoformat(timespec="seconds"),
        "finished": None,
        "command": [Path(sys.argv[0]).name, *sys.argv[1:]],
        "versions": versions(),
        "platform": platform.platform(),
        "device": "",
        "code": [code_fingerprint()],
        "config": config,
        "start": None,
        "initial_std": None,
    }
    # Characters that every file system and shell accepts
    plain = (re.sub(r"[^A-Za-z0-9_.]+", "-", each).strip("-.") for each in (env, algorithm))
    name = name or f"{'-'.join(plain)}-{started:%Y%m%d-%H%M%S}"
    run = root / name
    try:
        root.mkdir(parents=True, exist_ok=True)
        for number in itertools.count(2):
            try:
                run.mkdir()
                break
            except FileExistsError:  # two runs may start in the same second
                run = root / f"{name}-{number}"
    except (OSError, ValueError) as error:
        raise cannot_write(root, error) from error
    try:
        fill(run)
        write_sealed(run / NAME, manifest | about)
    except BaseException:
        discard(run)
        raise
    return run


def discard(run: Path) -> None:
    """Remove a run without training, and its parent folder if that is now empty."""
    shutil.rmtree(run, ignore_errors=True)
    with contextlib.suppress(OSError):
        run.parent.rmdir()


def check_name(root: Path, name: str) -> None:
    """Raise unless a new run below `root` can have this name."""
    if Path(name).name != name or name == "latest" or (root / name).exists():
        raise CanaryError(
            f"{root / name} exists already, or is not a name for a run; choose another --name."
        )


def versions() -> dict[str, str]:
    """The versions of Python and of the packages that determine numbers."""
    found = {"python": platform.python_version()}
    for distribution in ("canary-rl", "jax", "jaxlib", "numpy", "scipy"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[distribution.removesuffix("-rl")] = importlib.metadata.version(distribution)
    return found


def code_fingerprint() -> str:
    """A digest of the code that determines numbers: equal digests on one machine, equal numbers."""
    root = Path(__file__).parents[1]
    digest = hashlib.sha256()
    for name in MATHEMATICS:
        for path in sorted((root / name).rglob("*.py")) or [root / name]:
            digest.update(path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:12]


def stored_manifest(run: Path) -> dict[str, Any]:
    """The manifest as written, without its digest; a changed one is refused."""
    return read_sealed(run / NAME)


def read_manifest(run: Path) -> dict[str, Any]:
    """The manifest with its present `status`: a run that no process holds is not running."""
    manifest = stored_manifest(run)
    if manifest["status"] == "running" and not is_held(run):
        return manifest | {"status": "interrupted"}
    return manifest


def read_config(run: Path) -> dict[str, Any]:
    """The configuration of a run, with its present plan."""
    return stored_manifest(run)["config"]


def update_manifest(run: Path, **changes: Any) -> None:
    """Replace entries of the manifest; the process must hold the run."""
    write_sealed(run / NAME, stored_manifest(run) | changes)


@contextmanager
def hold(run: Path) -> Iterator[None]:
    """Hold a run, or raise if another process trains it."""
    lock = FileLock(run / LOCK)
    try:
        lock.acquire(timeout=LOCK_SECONDS)
    except Timeout:
        raise CanaryError(
            f"{run} is being trained by another process; wait for it or stop it first."
        ) from None
    except (OSError, NotImplementedError) as error:
        raise cannot_write(run / LOCK, error) from error
    try:
        yield
    finally:
        lock.release()


def is_held(run: Path) -> bool:
    """Whether a process trains the run now."""
    if not (run / LOCK).is_file():
        return False
    try:
        with FileLock(run / LOCK).acquire(timeout=0):
            return False
    except Timeout:
        return True
    except (OSError, NotImplementedError):  # read-only: no process trains here
        return False


def list_runs(root: Path) -> list[dict[str, Any]]:
    """The manifests of the runs below `root`, newest first, each with its `path`. A damaged run
    has a path and the status "unreadable"."""
    try:
        folders = list(root.iterdir()) if root.is_dir() else []
    except (OSError, ValueError) as error:
        raise CanaryError(f"{root} cannot be read ({reason_of(error)}).") from None
    rows = []
    for path in (path for path in folders if (path / NAME).exists()):
        row = {"path": str(path), "status": "unreadable", "started": "", "steps": None}
        with contextlib.suppress(CanaryError, OSError):
            row |= read_manifest(path)
        rows.append(row)
    return sorted(rows, key=lambda row: (row["started"], row["path"]), reverse=True)


def find_run(name: str, root: Path) -> Path:
    """The run of that path or name, or the newest for "latest"."""
    with contextlib.suppress(OSError):  # the name may be too long for a file
        for path in (Path(name), root / name):
            if (path / NAME).is_file():
                return path
    rows = list_runs(root)
    if name == "latest" and (readable := [row for row in rows if row["started"]]):
        return Path(readable[0]["path"])
    if not rows:
        raise CanaryError(f"There is no run in {root}; start one with `canary train`.")
    known = [Path(row["path"]).name for row in rows]
    raise CanaryError(f"There is no run {name!r:.80} in {root}{nearest(name, known)}")
