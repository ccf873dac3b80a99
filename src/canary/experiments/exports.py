"""`canary export`: the frozen policy of one seed as a file for other programs, checked before writing."""

from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from canary.certification.certify import environment_settings
from canary.environments.protocol import Environment
from canary.errors import CanaryError
from canary.experiments import storage
from canary.experiments.config import canonical, config_from_dict
from canary.experiments.frozen import FrozenPolicies, load_policies
from canary.export import numpy_format, onnx_format, stablehlo_format
from canary.export.portable import PortablePolicy, metadata


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
    "numpy": Format(numpy_format, ".npz", "for canary.export.numpy_policy, which needs numpy alone"),
}


def export_run(
    run: Path,
    *,
    format: str = "onnx",
    seed: int | None = None,
    out: Path | None = None,
    environment: Environment | None = None,
) -> dict[str, Any]:
    """Write the newest policy of a seed (the first, if not said) to `out`, or below the run's `exports/`.

    Returns what was written, with the policy's hash and its distance from JAX on random inputs; `environment`
    stands in for one that is not among the named environments.
    """
    name = canonical(format, FORMATS, "export format")
    chosen = FORMATS[name]
    config = config_from_dict(storage.read_json(run / "config.json"), environment)
    seed = config.training.seeds[0] if seed is None else seed
    path = run / "exports" / f"policy-seed{seed}{chosen.ending}" if out is None else out
    if path.is_dir():
        raise CanaryError(f"{path} is a directory; name the file to export to.")
    policies = load_policies(config, run)
    portable = portable_policy(policies, seed)
    data = chosen.module.encode(portable)
    parity = chosen.module.check_parity(portable, data)
    write(path, data)
    return {
        **metadata(portable),
        "path": str(path),
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
    environment = config.environment
    return PortablePolicy(
        policy=policy,
        statistics=statistics,
        augmentation=policies.augmentation,
        observation_size=environment.observation_size,
        action_space=environment.action_space,
        about={
            "environment": {"name": config.environment_name, "settings": environment_settings(environment)},
            "horizon": environment.horizon,
            "epsilon": config.constraint.epsilon,
            "algorithm": config.algorithm_name,
            "seed": seed,
            "updates": policies.iteration,
        },
        critics=policies.risk_critics(seed),
    )


def write(path: Path, data: bytes) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CanaryError(f"Cannot make {path.parent} ({error.strerror}); choose another place.") from error
    storage.write_atomically(path, data)
