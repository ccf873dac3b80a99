"""The layout of a run directory, and how runs are made, listed and found.

    runs/IcyLake-canary-20260131-142530/
      manifest.json                         what the run is and how to repeat it, where it ran, its status
      metrics.parquet  episodes.parquet     a row per update and a row per episode of every seed
      checkpoints/  kept/                   the newest two states; those that are kept for good
      summary.json  training.png            what was achieved; its figure
      evaluation.json  yardstick.json       the final policies on fresh episodes; constant actions
      .lock                                 locked while some process trains it
      certificate.json  .html  best.json    after `canary certify`
      exports/  video.gif                   after `canary export`, `canary evaluate --video`
      log.csv  tensorboard/  wandb/         with `--log`

Neither JAX nor polars is imported here: `canary list` answers at once.
"""

import contextlib
import importlib.metadata
import itertools
import os
import platform
import re
import socket
import sys
from collections.abc import Sequence
from datetime import datetime
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from canary.errors import CanaryError
from canary.runs.files import cannot_write, reason_of
from canary.runs.manifest import NAME, code_fingerprint, read_manifest, write_manifest

RUN_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,99}")
TAG = re.compile(r"[^\s,]([^,]{0,48}[^\s,])?")


def create(
    root: Path,
    config: dict[str, Any],
    steps: int,
    *,
    device: str = "",
    name: str | None = None,
    tags: Sequence[str] = (),
    log: Sequence[str] = (),
    start: dict[str, Any] | None = None,
) -> Path:
    """Make a new run directory below `root` and return it; an existing one is never touched.
    `steps` are planned per seed."""
    started = datetime.now().astimezone()
    env, algorithm = config["environment"]["name"], config["algorithm"]["name"]
    manifest = {
        "env": env,
        "algorithm": algorithm,
        "seeds": len(config["training"]["seeds"]),
        "total_steps": steps,
        "tags": list(tags),
        "log": list(log),
        "status": "running",
        "steps": 0,
        "started": started.isoformat(timespec="seconds"),
        "finished": None,
        "command": [Path(sys.argv[0]).name, *sys.argv[1:]],
        "process": process_identity(),
        "versions": versions(),
        "platform": platform.platform(),
        "cpu_count": os.cpu_count(),
        "device": device,
        "code": [code_fingerprint()],
        "config": config,
        "start": start,
    }
    # Characters that every file system and shell takes
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
    write_manifest(run, manifest)
    return run


def check_labels(root: Path, name: str | None, tags: Sequence[str]) -> None:
    """Raise if a new run below `root` cannot have this name or one of these tags."""
    for tag in tags:
        if not TAG.fullmatch(tag):
            raise CanaryError(f"A tag is a short text without commas, not {tag!r:.60}.")
    if name is not None and (not RUN_NAME.fullmatch(name) or name == "latest"):
        raise CanaryError(
            "A run's name consists of at most 100 letters, digits and _ . + -, and is not latest; "
            f"{name!r:.60} is not such a name."
        )
    if name is not None and (root / name).exists():
        raise CanaryError(
            f"{root / name} exists already; choose another --name, or continue it: canary train "
            f"--resume {name}."
        )


def process_identity() -> dict[str, Any]:
    return {"pid": os.getpid(), "hostname": socket.gethostname()}


def versions() -> dict[str, str]:
    """The versions of Python and of the packages that numbers depend on."""
    found = {"python": platform.python_version()}
    for distribution in ("canary-rl", "jax", "jaxlib", "numpy", "scipy"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[distribution.removesuffix("-rl")] = importlib.metadata.version(distribution)
    return found


def list_runs(root: Path) -> list[dict[str, Any]]:
    """The manifests of the runs below `root`, newest first, each with its `path`. Of a broken run
    only path and status are known: it is "unreadable"."""
    try:
        folders = list(root.iterdir()) if root.is_dir() else []
    except (OSError, ValueError) as error:
        raise CanaryError(f"{root} cannot be read ({reason_of(error)}).") from None
    rows = [_row(path) for path in folders if (path / NAME).exists()]
    return sorted(rows, key=lambda row: (row["started"], row["path"]), reverse=True)


def _row(path: Path) -> dict[str, Any]:
    try:
        return read_manifest(path) | {"path": str(path)}
    except (CanaryError, OSError):
        return {"path": str(path), "status": "unreadable", "started": "", "steps": None, "tags": []}


def find_run(name: str, root: Path) -> Path:
    """The run of that path or name, or the newest for "latest"; else a sentence with the nearest
    name."""
    try:
        for path in (Path(name), root / name):
            if (path / NAME).is_file():
                return path
        if Path(name).is_dir():
            raise CanaryError(
                f'"{name}" is a directory but not a run: it has no {NAME}; see `canary list`.'
            )
    except OSError as error:  # a name that is too long
        raise CanaryError(
            f"{name!r:.80} cannot be the name of a run ({reason_of(error)})."
        ) from None
    rows = list_runs(root)
    if name == "latest" and (readable := [row for row in rows if row["started"]]):
        return Path(readable[0]["path"])
    names = [Path(row["path"]).name for row in rows]
    if not names:
        raise CanaryError(
            f'There is no run "{name}" nor any other in {root}; start one with `canary train`.'
        )
    near = (get_close_matches(Path(name).name, names, n=1, cutoff=0.3) or names)[0]
    raise CanaryError(f'There is no run "{name}" in {root}; did you mean "{near}"?')
