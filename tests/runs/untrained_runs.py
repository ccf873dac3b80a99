"""Run directories with a checkpoint but without training."""

from pathlib import Path
from typing import Any

import equinox as eqx

from canary.config.config import make_config
from canary.config.run_config import config_to_dict
from canary.constraints import Chance
from canary.environments.icy_lake import IcyLake
from canary.runs import checkpoint, directory
from canary.runs.environment import describe_environment
from canary.runs.seeds import SeedGroups

LAKE = IcyLake(map="SFF/FHF/FFG", horizon=12)
LIMIT = 1.5


def untrained_run(
    folder: Path, *, overrides: tuple[str, ...] = (), sharpness: float = 60.0, **choices: Any
) -> Path:
    """Two seeds on a small lake; `sharpness` multiplies the policies' heads."""
    choices = {
        "env": LAKE,
        "constraint": Chance(limit=LIMIT, epsilon=0.1),
        "seeds": (0, 3),
    } | choices
    config = make_config(**choices, overrides=("algo.hidden=[8,8]", *overrides))
    groups = SeedGroups(config)
    groups.start()
    states = eqx.tree_at(
        lambda tree: tree.learner.policy.network.weights[-1],
        groups.stacked(),
        replace_fn=lambda head: sharpness * head,
    )
    states = eqx.tree_at(lambda tree: tree.terms.iteration, states, replace_fn=lambda n: n + 7)
    described = config_to_dict(config) | {"environment": describe_environment(config.environment)}
    run = directory.create(folder, described, config.training.total_steps)
    checkpoint.save(checkpoint.checkpoint_path(run, 7), states)
    return run
