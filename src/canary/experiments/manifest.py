"""A run's manifest, checked: its readers may rely on the fields that every run has from its first moment."""

from pathlib import Path
from typing import Any

from canary.errors import CanaryError
from canary.experiments import storage

FIELDS = {
    "status": str,
    "steps": int,
    "total_steps": int,
    "seeds": int,
    "env": str,
    "algorithm": str,
    "process": dict,
}


def read_manifest(run: Path) -> dict[str, Any]:
    """The manifest with its `status` as it is now: a run whose process is gone is not running any more."""
    path = run / "manifest.json"
    manifest = storage.read_json(path)
    for name, kind in FIELDS.items():
        if not isinstance(manifest.get(name), kind):
            raise CanaryError(f"{path} is damaged (no valid {name!r}); restore it or start a new run.")
    try:
        return manifest | {"status": storage.run_status(manifest)}
    except (KeyError, ValueError, TypeError) as error:
        raise CanaryError(f"{path} is damaged ({error}); restore it or start a new run.") from error
