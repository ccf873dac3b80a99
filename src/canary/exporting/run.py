"""`canary export`: write the frozen policy of one seed as a file for other programs."""

import hashlib
from pathlib import Path
from typing import Any

from canary.config.run_config import RunConfig
from canary.config.settings import canonical
from canary.exporting.formats import FORMATS, check_parity
from canary.runs import files
from canary.runs.environment import open_config, refuse_changes
from canary.runs.policies import load_policies


def export_run(
    run: Path,
    *,
    format: str = "onnx",
    seed: int | None = None,
    step: int | None = None,
    out: Path | None = None,
    config: RunConfig | None = None,
) -> dict[str, Any]:
    """Write the policy of a seed (default: the first) after `step` steps (default: the newest) to
    `out` (default: below the run's `exports/`).

    The policy is compared with JAX before the file is written. Returns the metadata, the digests
    and the largest differences. `config` is the run's opened configuration.
    """
    name = canonical(format, FORMATS, "export format")
    chosen = FORMATS[name]
    config = config or open_config(run)
    refuse_changes(run, config.environment_changes)
    seed = config.training.seeds[0] if seed is None else seed
    at = "" if step is None else f"-step{step}"
    path = run / "exports" / f"policy-seed{seed}{at}{chosen.ending}" if out is None else out
    files.check_target(path)
    policies = load_policies(config, run, step)
    trained = policies.trained(seed)
    data = chosen.encode(trained)
    parity = check_parity(trained, chosen.implementation(data))
    files.make_folder(path.parent)
    files.write_atomically(path, data)
    digest = hashlib.sha256(data).hexdigest()
    note = f"{digest}  {path.name}\n"  # the format of sha256sum
    files.write_atomically(path.with_name(f"{path.name}.sha256"), note.encode())
    return {
        **trained.metadata,
        "path": str(path),
        "file_sha256": digest,
        "format": name,
        "bytes": len(data),
        "run_dir": str(run),
        **parity,
        "notes": policies.notes,
    }
