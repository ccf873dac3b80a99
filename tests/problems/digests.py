"""A few updates of every algorithm, as numbers that a later version can be compared with.

    python -m problems.digests      (in tests/) writes golden/digests.json anew, after a change that means to change results

A digest holds the sum and the norm of every array of the learner, and a hash of all its bits. Bits
depend on the processor and on the version of XLA, so they are compared on the machine that made
them; elsewhere the sums and norms are compared within a tolerance.
"""

import hashlib
import json
import platform
from pathlib import Path
from typing import Any

import jax
import jaxlib
import numpy as np

from canary.config.config import make_config
from canary.runs.seeds import make_terms, make_trainer
from canary.training import init_training, train_chunk
from problems.compilation import COMPILERS

GOLDEN = Path(__file__).parents[1] / "golden" / "digests.json"
UPDATES = 3
SMALL = ("training.rollout_length=50", "algo.estimation.hidden=[16,16]")
LAKE = ("env.horizon=20", "training.environments=4", *SMALL)
ROBOT = ("env.horizon=25", "training.environments=2", *SMALL)
CRITICS = ("algo.critic.epochs=2", "algo.critic.minibatches=2")
TRUST_REGION = (*CRITICS, "algo.warmup_episodes=2")
CASES = {
    "canary on IcyLake": ("IcyLake", "canary", (*LAKE, "algo.critic.epochs=2", "algo.warmup_episodes=2")),
    "cpo on IcyLake": ("IcyLake", "cpo", (*LAKE, *TRUST_REGION, "training.merge_capacity=0")),
    "cvar-cpo on IcyLake": ("IcyLake", "cvar-cpo", (*LAKE, *TRUST_REGION, "training.merge_capacity=0")),
    "ppo on IcyLake": ("IcyLake", "ppo", (*LAKE, "training.merge_capacity=0")),
    "cppo on IcyLake": ("IcyLake", "cppo", (*LAKE, "algo.warmup_episodes=2", "training.merge_capacity=0")),
    "canary on PointGoal": ("PointGoal", "canary", (*ROBOT, *TRUST_REGION)),
    "ppo on PointGoal": ("PointGoal", "ppo", (*ROBOT, "algo.minibatch_size=50")),
    "canary on EcoAnt": ("EcoAnt", "canary", (*ROBOT, *TRUST_REGION, "env.engine=native")),
    "fast canary on IcyLake": ("IcyLake", "canary", LAKE, "fast"),
    "fast canary on PointGoal": ("PointGoal", "canary", (*ROBOT, "algo.minibatch_size=50"), "fast"),
    "fast ppo-lagrangian on IcyLake": ("IcyLake", "ppo-lagrangian", LAKE, "fast"),
}  # fmt: skip


def digest(case: str, compiler: str) -> dict[str, Any]:
    """The learner of seed 3 after three updates on small batches."""
    options = COMPILERS[compiler]
    environment, algorithm, overrides, *preset = CASES[case]
    config = make_config(environment, algorithm, preset=(*preset, "paper")[0], overrides=overrides)
    trainer = make_trainer(config)
    state = jax.jit(
        lambda: init_training(trainer, make_terms(config), 3), compiler_options=options
    )()
    advance = jax.jit(
        lambda state: train_chunk(trainer, state, UPDATES, UPDATES), compiler_options=options
    )
    state, _ = advance(state)
    parts = jax.tree_util.tree_leaves_with_path(
        (state.learner.policy, state.learner.critics.networks)
    )
    arrays = {jax.tree_util.keystr(path): np.asarray(leaf) for path, leaf in parts}
    bits = hashlib.sha256(b"".join(array.tobytes() for array in arrays.values())).hexdigest()
    wide = [array.astype(np.float64) for array in arrays.values()]
    return {
        "bits": bits,
        "sums": [float(array.sum()) for array in wide],
        "norms": [float(np.linalg.norm(array)) for array in wide],
    }


def machine() -> str:
    """What the bits depend on: the processor and the compiler."""
    cpu = Path("/proc/cpuinfo")
    lines = cpu.read_text().splitlines() if cpu.exists() else []
    model = next(
        (line.partition(":")[2].strip() for line in lines if line.startswith("model name")), ""
    )
    flags = next((line.partition(":")[2].strip() for line in lines if line.startswith("flags")), "")
    kind = hashlib.sha256(" ".join(sorted(flags.split())).encode()).hexdigest()[:12]
    return f"{platform.machine()} {model} {kind} jaxlib {jaxlib.__version__}"


def main() -> None:
    record: dict[str, Any] = {"machine": machine()}
    for compiler in COMPILERS:
        record[compiler] = {case: digest(case, compiler) for case in CASES}
    GOLDEN.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
