"""`canary export`: the frozen policy of one seed as a file for other programs, checked before
writing."""

import hashlib
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from canary.config.config import canonical
from canary.constraints import to_dict
from canary.environments.protocol import Environment
from canary.errors import CanaryError
from canary.export import numpy_format, onnx_format, stablehlo_format
from canary.export.portable import PortablePolicy, metadata
from canary.identity import place_of
from canary.runs import files
from canary.runs.environment import open_config
from canary.runs.policies import FrozenPolicies, load_policies


class Format(NamedTuple):
    module: ModuleType
    """Has `encode(portable) -> bytes` and `check_parity(portable, bytes) -> Parity`."""
    ending: str
    meaning: str


FORMATS = {
    "onnx": Format(onnx_format, ".onnx", "for onnxruntime and everything else that reads ONNX"),
    "stablehlo": Format(
        stablehlo_format, ".stablehlo.zip", "for JAX, and a StableHLO module for other compilers"
    ),
    "numpy": Format(
        numpy_format, ".npz", "for canary.export.numpy_policy, which needs numpy alone"
    ),
}


def export_run(
    run: Path,
    *,
    format: str = "onnx",
    seed: int | None = None,
    step: int | None = None,
    out: Path | None = None,
    environment: Environment | None = None,
) -> dict[str, Any]:
    """Write the policy of a seed (the first, if not said) to `out`, or below the run's `exports/`:
    the newest one, or that after `step` steps.

    Returns what was written, with the policy's hash and its distance from JAX on random inputs;
    `environment` stands in for one that is not among the named environments.
    """
    name = canonical(format, FORMATS, "export format")
    chosen = FORMATS[name]
    config = open_config(run, environment)
    seed = config.training.seeds[0] if seed is None else seed
    at = "" if step is None else f"-step{step}"
    path = run / "exports" / f"policy-seed{seed}{at}{chosen.ending}" if out is None else out
    files.check_name(path)
    if path.is_dir():
        raise CanaryError(f"{path} is a directory; name the file to export to.")
    policies = load_policies(config, run, step)
    portable = portable_policy(policies, seed)
    data = chosen.module.encode(portable)
    parity = chosen.module.check_parity(portable, data)
    within = run if out is None else None
    files.make_folder(path.parent, within=within)
    files.remove_orphans(path.parent)
    files.write_atomically(path, data, within=within)
    digest = hashlib.sha256(data).hexdigest()
    note = f"{digest}  {path.name}\n"  # as sha256sum writes and checks it
    files.write_atomically(path.with_name(f"{path.name}.sha256"), note.encode(), within=within)
    return {
        **metadata(portable),
        "path": str(path),
        "file_sha256": digest,
        "format": name,
        "bytes": len(data),
        "run_dir": str(run),
        "max_abs_difference": parity.distribution,
        "max_output_difference": parity.outputs,
        "checked_inputs": parity.inputs,
        "notes": policies.notes,
    }


def portable_policy(policies: FrozenPolicies, seed: int) -> PortablePolicy:
    """A seed's policy with all that it needs elsewhere."""
    config = policies.config
    policy, statistics = policies.of_seed(seed)
    return PortablePolicy(
        policy=policy,
        statistics=statistics,
        account=policies.account,
        place=place_of(config.environment, config.environment_name),
        about={
            "constraint": to_dict(config.constraint),
            "epsilon": config.constraint.share,
            "algorithm": config.algorithm_name,
            "seed": seed,
            "updates": policies.iteration,
        },
        critics=policies.risk_critics(seed),
    )
