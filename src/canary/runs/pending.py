"""What a run has done since its last checkpoint, kept in memory and written with the next one."""

import time
from pathlib import Path
from typing import Any

from canary.runs import checkpoint, directory, files, kept, lock
from canary.runs.manifest import read_manifest
from canary.runs.seeds import SeedGroups


class PendingRows:
    """Rows since the last checkpoint, written together with the next one."""

    def __init__(self, run: Path, iteration: int, config: dict[str, Any], held: lock.RunLock):
        self._run, self._first, self._config, self._held = run, iteration, config, held
        self._metrics: list[Any] = []
        self._episodes: list[Any] = []
        self._saved = time.monotonic()
        self._train_seconds = float(read_manifest(run).get("train_seconds", 0.0)) if iteration else 0.0

    def age(self) -> float:
        return time.monotonic() - self._saved

    def add(self, metrics: Any, episodes: Any, seconds: float) -> None:
        self._metrics.append(metrics)
        self._episodes.append(episodes)
        self._train_seconds += seconds

    def commit(self, groups: SeedGroups, iteration: int, steps: int, *, keep: bool = False) -> None:
        """Tables first, then the state that continues after them; `keep` stores it a second time, for good."""
        import polars as pl

        if not self._metrics:
            return
        self._held.check()  # nothing is written into a run that somebody has taken over
        frames: dict[Any, Any] = {"metrics": pl.concat(self._metrics), "episodes": pl.concat(self._episodes)}
        directory.append_parts(self._run, frames, self._first, iteration)
        folder = self._run / "checkpoints"
        metadata = {"iteration": iteration, "config": self._config}
        states = groups.stacked()
        for place in (folder, *((self._run / kept.FOLDER,) if keep else ())):
            files.make_folder(place, within=self._run)
            path = checkpoint.checkpoint_path(place, iteration)
            checkpoint.save(path, states, metadata=metadata, within=self._run)
        directory.update_manifest(self._run, steps=steps, train_seconds=round(self._train_seconds, 2))
        checkpoint.prune(folder)
        self._metrics, self._episodes, self._first, self._saved = [], [], iteration, time.monotonic()
