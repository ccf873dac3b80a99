"""`canary export`: write the frozen policy of one seed as a file for other programs."""

import hashlib
from pathlib import Path
from typing import Any

import numpy as np

from canary.config.settings import canonical
from canary.constraints import to_dict
from canary.environments.protocol import Environment
from canary.export.formats import FORMATS, check_parity
from canary.export.trained_policy import TrainedPolicy
from canary.identity import place_of
from canary.runs import files
from canary.runs.directory import versions
from canary.runs.environment import open_config
from canary.runs.policies import FrozenPolicies, load_policies


def export_run(
    run: Path,
    *,
    format: str = "onnx",
    seed: int | None = None,
    step: int | None = None,
    out: Path | None = None,
    environment: Environment | None = None,
) -> dict[str, Any]:
    """Write the policy of a seed (default: the first) after `step` steps (default: the newest) to
    `out` (default: below the run's `exports/`).

    The file is compared with JAX before it is written. Returns the metadata, the digests and the
    largest differences. `environment` replaces one that is not among the named environments.
    """
    name = canonical(format, FORMATS, "export format")
    chosen = FORMATS[name]
    config = open_config(run, environment)
    seed = config.training.seeds[0] if seed is None else seed
    at = "" if step is None else f"-step{step}"
    path = run / "exports" / f"policy-seed{seed}{at}{chosen.ending}" if out is None else out
    files.check_target(path)
    policies = load_policies(config, run, step)
    trained = trained_policy(policies, seed)
    data = chosen.encode(trained)
    parity = check_parity(trained, chosen.implementation(data))
    files.make_folder(path.parent)
    files.remove_unfinished(path.parent)
    files.write_atomically(path, data)
    digest = hashlib.sha256(data).hexdigest()
    note = f"{digest}  {path.name}\n"  # as sha256sum writes and checks it
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


def trained_policy(policies: FrozenPolicies, seed: int) -> TrainedPolicy:
    """The policy of a seed, with where it comes from."""
    config = policies.config
    about = {
        "constraint": to_dict(config.constraint),
        "epsilon": np.asarray(config.constraint.share).tolist(),
        "algorithm": config.algorithm_name,
        "seed": seed,
        "updates": policies.iteration,
        "versions": versions(),
    }
    place = place_of(config.environment, config.environment_name)
    critics = policies.risk_critics(seed)
    return TrainedPolicy(*policies.of_seed(seed), policies.account, place, critics, about)
