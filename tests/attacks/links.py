"""Hostile run directories: links, pipes and devices in every place where canary writes or reads."""

import os
import shutil
from pathlib import Path

import numpy as np

from attacks.attack import Attack
from canary.certification.run import CertificateRequest, certify_run
from canary.errors import CanaryError
from canary.export.run import export_run
from canary.runs import checkpoint, directory, lock
from canary.runs.runner import clean
from runs.untrained_runs import untrained_run

PLACES = (
    "certificate.json", "certificate.html", "exports", "exports/policy-seed0.npz", "exports/policy-seed0.npz.sha256",
    "manifest.json", "summary.json", "training.png", "checkpoints/checkpoint-00000008.npz", ".lock", "metrics",
    "metrics/part-00000007-00000008.parquet", "metrics.parquet", "episodes.parquet", "video.gif",
    ".certificate.json.tmp", ".certificate.html.tmp", ".manifest.json.tmp", "exports/.policy-seed0.npz.tmp",
    ".summary.json.tmp", ".video.gif.tmp", ".config.json.tmp", "exports/.manifest.json.tmp", "checkpoints", "config.json",
    "checkpoints/.checkpoint-00000008.npz.tmp",
)  # fmt: skip


class Links(Attack):
    """A link to a precious file, or directory, in the place of something that canary writes."""

    name, tries = "links out of the run", 2 * len(PLACES)

    def prepare(self, folder: Path) -> None:
        self._folder, self._run = folder, untrained_run(folder / "runs")

    def attempt(self, number: int, random: np.random.Generator) -> str | None:
        place, dangling = PLACES[number % len(PLACES)], number >= len(PLACES)
        run, outside = self._folder / "copy", self._folder / "outside"
        for path in (run, outside):
            shutil.rmtree(path, ignore_errors=True)
        shutil.copytree(self._run, run)
        outside.mkdir()
        victim = outside / "victim"
        if place in ("exports", "metrics", "checkpoints"):
            victim.mkdir()
        elif not dangling:
            victim.write_bytes(b"precious")
        _replace_by_link(run / place, victim)
        before = _contents(outside)
        for write in (_certify, _export, _checkpoint, _tables, _others):
            try:
                write(run)
            except CanaryError:
                continue
            except Exception as error:
                return f"{place}: {write.__name__} raised {type(error).__name__}: {error}"
        return (
            None
            if _contents(outside) == before
            else f"{place}: a file outside of the run was touched"
        )


def _replace_by_link(path: Path, target: Path) -> None:
    path.parent.mkdir(exist_ok=True)
    if path.is_dir():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    path.symlink_to(target)


def _contents(folder: Path) -> dict[str, bytes | None]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() if path.is_file() else None
        for path in folder.rglob("*")
    }


def _certify(run: Path) -> None:
    request = CertificateRequest(episodes=50, batch=50, evaluation_seed=3, seeds=(0,))
    certify_run(run, request, quiet=True)


def _export(run: Path) -> None:
    export_run(run, format="numpy")


def _checkpoint(run: Path) -> None:
    with lock.acquire(run):
        clean(run)
        path = checkpoint.checkpoint_path(run / "checkpoints", 8)
        checkpoint.save(path, {"x": np.zeros(3)}, metadata={"iteration": 8}, within=run)
    path.unlink()


def _tables(run: Path) -> None:
    import polars as pl

    frame = pl.DataFrame({"seed": [0], "iteration": [7], "steps": [10]})
    directory.append_parts(run, {"metrics": frame}, 7, 8)
    directory.compact(run)


def _others(run: Path) -> None:
    directory.update_manifest(run, status="interrupted")
    for name in ("summary.json", "training.png", "video.gif"):
        directory.write_atomically(run / name, b"{}")
    assert os.path.lexists(run)


ATTACKS = [Links()]
