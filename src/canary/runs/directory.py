"""The layout of a run directory, and how runs are made, listed and found.

    runs/IcyLake-canary-20260131-142530/
      config.json  manifest.json            how to repeat the run; what it is, where it ran, its status
      metrics/  episodes/                   part-<first>-<last>.parquet: rows of iterations [first, last)
      metrics.parquet  episodes.parquet     the parts joined, once the run has finished
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
import shutil
import sys
from collections.abc import Sequence
from datetime import datetime
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from canary.errors import CanaryError
from canary.runs.files import (
    cannot_write,
    reason_of,
    remove_unfinished,
    unfinished,
    write_json,
)
from canary.runs.manifest import (
    as_planned,
    code_fingerprint,
    process_identity,
    read_manifest,
    write_manifest,
)


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
    name = name or f"{_plain(env)}-{_plain(algorithm)}-{started:%Y%m%d-%H%M%S}"
    draft = unfinished(root / name, "draft")
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
        "tables": {},
        **({"start": start} if start else {}),
    }
    try:
        for folder in ("metrics", "episodes", "checkpoints"):
            (draft / folder).mkdir(parents=True)
        remove_unfinished(root)
        write_json(draft / "config.json", config)
        write_manifest(draft, manifest)
        # Two runs may start in the same second
        names = itertools.chain([name], (f"{name}-{number}" for number in itertools.count(2)))
        return draft.rename(next(root / each for each in names if not (root / each).exists()))
    except OSError as error:
        raise cannot_write(root, error) from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)  # it has its name by now, unless that failed


def _plain(name: str) -> str:
    """A name in characters that every file system and shell takes."""
    return re.sub(r"[^A-Za-z0-9_.]+", "-", name).strip("-.")


def versions() -> dict[str, str]:
    """The versions of Python and of the packages that numbers depend on."""
    found = {"python": platform.python_version()}
    for distribution in ("canary-rl", "jax", "jaxlib", "numpy", "scipy"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[distribution.removesuffix("-rl")] = importlib.metadata.version(distribution)
    return found


def list_runs(root: Path) -> list[dict[str, Any]]:
    """The manifests of the runs below `root`, newest first, each with its `path` and the settings
    as they are planned now. Of a broken run only path and status are known: it is "unreadable"."""
    try:
        folders = [path for path in root.iterdir() if path.name[0] != "."] if root.is_dir() else []
    except (OSError, ValueError) as error:
        raise CanaryError(f"{root} cannot be read ({reason_of(error)}).") from None
    rows = [_row(path) for path in folders if (path / "config.json").exists()]
    return sorted(rows, key=lambda row: (row["started"], row["path"]), reverse=True)


def _row(path: Path) -> dict[str, Any]:
    try:
        manifest = read_manifest(path)
    except (CanaryError, OSError):
        return {"path": str(path), "status": "unreadable", "started": "", "steps": None, "tags": []}
    return manifest | {"path": str(path), "config": as_planned(manifest["config"], manifest)}


def find_run(name: str, root: Path) -> Path:
    """The run of that path or name, or the newest for "latest"; else a sentence with the nearest
    name."""
    try:
        for path in (Path(name), root / name):
            if (path / "config.json").is_file():
                return path
        if Path(name).is_dir():
            raise CanaryError(
                f'"{name}" is a directory but not a run: it has no config.json; see `canary list`.'
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
