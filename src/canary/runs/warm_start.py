"""Warm start: training begins with the policies of another run.

Arrays are taken from a checkpoint by name and must have the shapes of the new run. The limit, the
settings and the environment may differ, if observations and actions have the same sizes.

Training then is fine-tuning (`training.fine_tuning`): the learning rate begins at half, and the
highest price is that of the end of a run. Training from scratch starts with a low price, so that the
policy can learn to earn reward. A trained policy has learnt this; with a low price it would violate
a smaller limit for most of the run.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from canary.errors import CanaryError
from canary.networks import Policy
from canary.numerics.running_statistics import RunningStatistics
from canary.runs.checkpoint import named_leaves, newest, read_arrays
from canary.runs.directory import read_config
from canary.training import TrainingState

POLICY = ("tree.learner.policy", "tree.statistics")  # shapes must match
REST = ("tree.learner.critics", "tree.learner.extra")  # taken if all shapes match


@dataclass(frozen=True)
class Start:
    """Trained seeds to start from, as arrays [seed, ...] by their names in a checkpoint."""

    name: str
    """The run, in words."""
    arrays: dict[str, np.ndarray]
    seeds: tuple[int, ...]
    """The seeds of the arrays."""
    record: dict[str, Any]
    """Origin of the arrays, for the manifest of the new run."""
    seed: int | None = None
    """The seed from which all new seeds start; None: each starts from the seed of its number."""

    def begin(
        self, states: TrainingState, seeds: Sequence[int]
    ) -> tuple[TrainingState, dict[str, Any]]:
        """Fresh states of new seeds with these arrays, and a record of the start."""
        sources = list(seeds) if self.seed is None else [self.seed] * len(seeds)
        if missing := [seed for seed in sources if seed not in self.seeds]:
            known = ", ".join(map(str, self.seeds))
            raise CanaryError(
                f"{self.name} has no seed {missing[0]}, only {known}: train these seeds, or say "
                "which one all begin with (--seed)."
            )
        leaves = dict(named_leaves(states))

        def shapes(arrays: dict[str, Any], prefix: tuple[str, ...]) -> dict[str, Any]:
            return {
                name: (array.shape[1:], str(array.dtype))
                for name, array in arrays.items()
                if name.startswith(prefix)
            }

        found, wanted = shapes(self.arrays, POLICY), shapes(leaves, POLICY)
        for name in wanted | found:
            if found.get(name) != wanted.get(name):
                is_, must = (each.get(name, ("not there",))[0] for each in (found, wanted))
                raise CanaryError(
                    f"Training cannot begin with {self.name}: {name.removeprefix('tree.')} is "
                    f"{is_} and must be {must}. A warm start needs observations, actions and "
                    "hidden layers (algo.hidden) of the same sizes, and a method whose policy sees "
                    "the same (canary and ppo-lagrangian see the spent cost, ppo does not)."
                )
        rest = shapes(leaves, REST)
        has_rest = rest.items() <= shapes(self.arrays, REST).items()
        rows = [self.seeds.index(seed) for seed in sources]
        for name in (*wanted, *(rest if has_rest else ())):
            leaves[name] = jnp.asarray(self.arrays[name][rows])
        pairs = {str(new): old for new, old in zip(seeds, sources, strict=True)}
        begun = jax.tree.unflatten(jax.tree.structure(states), list(leaves.values()))
        return begun, self.record | {"seeds": pairs, "critics": has_rest}


def start_from_run(run: Path, seed: int | None = None) -> Start:
    """The newest intact state of a run; `seed` takes one policy for all new seeds."""
    training, (arrays, _) = read_config(run)["training"], newest(run, read_arrays)
    batch = training["environments"] * training["rollout_length"]
    record = {"run": str(run), "step": int(arrays["tree.terms.iteration"][0]) * batch}
    return Start(str(run), arrays, tuple(training["seeds"]), record, seed)


def start_from_policy(policy: Policy, statistics: RunningStatistics | None, sha256: str) -> Start:
    """A policy with its normaliser, for all new seeds."""
    pairs = zip(POLICY, (policy, statistics), strict=True)
    leaves = (leaf for prefix, tree in pairs for leaf in named_leaves(tree, prefix))
    arrays = {name: np.asarray(leaf)[None] for name, leaf in leaves}
    return Start("the policy", arrays, (0,), {"policy_sha256": sha256}, seed=0)
