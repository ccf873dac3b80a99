"""A flipped bit in every kind of file: refused, or read as if nothing had happened."""

import contextlib
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np

from attacks.attack import Attack, flipped
from canary.certification.run import CertificateRequest, certify_run
from canary.certification.verify import verify
from canary.config.config import config_from_dict
from canary.errors import CanaryError
from canary.export import numpy_policy
from canary.export.run import export_run
from canary.runs import checkpoint, directory, files, manifest
from canary.runs.stored_states import load_states
from runs.untrained_runs import untrained_run

FILES = (
    "checkpoint", "table", "configuration", "manifest", "summary", "certificate", "numpy export", "ONNX export",
)  # fmt: skip
SUMMARY = {"return_mean": 0.953, "violation_probability": 0.0145, "limit": 5.5, "epsilon": 0.02}


class Flips(Attack):
    """Flips in one kind of file."""

    tries = 2000

    def __init__(self, kind: str):
        self.name, self._kind = f"flips: {kind}", kind

    def prepare(self, folder: Path) -> None:
        self._run = run = untrained_run(folder)
        config = config_from_dict(directory.read_config(run))
        tree, _, _ = load_states(config, run)
        self._like = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), tree)
        _fill_tables(run)
        places: dict[str, Callable[[], Path]] = {
            "checkpoint": lambda: checkpoint.checkpoints(run / "checkpoints")[0],
            "table": lambda: run / "episodes.parquet",
            "configuration": lambda: run / "config.json",
            "manifest": lambda: run / "manifest.json",
            "certificate": lambda: _certificate(run),
            "numpy export": lambda: Path(export_run(run, format="numpy")["path"]),
            "ONNX export": lambda: Path(export_run(run, format="onnx")["path"]),
            "summary": lambda: _summary(run),
        }
        self._path = places[self._kind]()
        self._data, self._expected = self._path.read_bytes(), None
        self._expected = self._read()

    def attempt(self, number: int, random: np.random.Generator) -> str | None:
        self._path.write_bytes(flipped(self._data, random))
        try:
            with contextlib.suppress(
                CanaryError, ValueError
            ):  # ValueError: numpy_policy, which stands alone
                if self._read() != self._expected:
                    return f"{self._path.name} was read as something else"
            return None
        except Exception as error:
            return f"{type(error).__name__}: {error}"
        finally:
            self._path.write_bytes(self._data)

    def _read(self) -> Any:
        """All that a reader learns from the file, in a form that can be compared."""
        run = self._run
        match self._kind:
            case "checkpoint":
                tree, metadata = checkpoint.load(self._path, self._like)
                arrays = [np.asarray(_plain(leaf)).tobytes() for leaf in jax.tree.leaves(tree)]
                return arrays, metadata
            case "table":
                return directory.read(run, "episodes").rows()
            case "configuration":
                return directory.read_config(run)
            case "manifest":
                return manifest.stored_manifest(run)
            case "summary":
                said = directory.unsealed(files.read_json(self._path), self._path)
                return {name: said.get(name) for name in SUMMARY}
            case "certificate":
                certificate = files.read_json(self._path)
                if verify(certificate):
                    raise CanaryError("not valid")
                return certificate
            case "numpy export":
                policy = numpy_policy.load(self._path)
                return policy.metadata, {
                    name: array.tobytes() for name, array in policy.arrays.items()
                }
        return numpy_policy.read_checked(self._path)


def _plain(leaf: Any) -> Any:
    is_key = jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)
    return jax.random.key_data(leaf) if is_key else leaf


def _fill_tables(run: Path) -> None:
    import polars as pl

    rows = {
        "seed": [0, 3] * 20, "iteration": [k // 20 for k in range(40)], "environment": [0] * 40,
        "return": [0.5] * 40, "cost": [float(k % 7) for k in range(40)], "length": [9] * 40,
        "terminated": [True] * 40, "valid": [True] * 40,
    }  # fmt: skip
    directory.append_parts(run, {"episodes": pl.DataFrame(rows)}, 0, 2)
    metrics = {"seed": [0, 3], "iteration": [0, 0], "steps": [10, 10]}
    directory.append_parts(run, {"metrics": pl.DataFrame(metrics)}, 0, 2)
    directory.compact(run)


def _summary(run: Path) -> Path:
    directory.write_json(run / "summary.json", files.sealed(dict(SUMMARY)))
    return run / "summary.json"


def _certificate(run: Path) -> Path:
    with contextlib.redirect_stderr(io.StringIO()):
        certificate = certify_run(
            run, CertificateRequest(episodes=100, batch=50, evaluation_seed=3), quiet=True
        )
    path = run / "mine.json"
    path.write_text(json.dumps(certificate))
    return path


ATTACKS = [Flips(kind) for kind in FILES]
