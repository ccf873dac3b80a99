"""Warm start: training begins with what another run has learnt.

Arrays are taken from a checkpoint by their names and must have the shapes that the new run needs.
The limit, the settings and the environment may differ, as long as observations and actions have the
same sizes.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from canary.errors import CanaryError
from canary.networks import Policy
from canary.numerics.running_statistics import RunningStatistics
from canary.runs.checkpoint import named_leaves, newest, read_arrays
from canary.runs.manifest import read_config
from canary.training import TrainingState

POLICY = ("tree.learner.policy", "tree.statistics")  # must fit
REST = ("tree.learner.critics", "tree.learner.extra")  # taken if all of it fits


@dataclass(frozen=True)
class Start:
    """Trained seeds to begin with, as arrays [seed, ...] by their names in a checkpoint."""

    name: str
    """The run, in words."""
    arrays: dict[str, np.ndarray]
    seeds: tuple[int, ...]
    """The seeds of the arrays."""
    record: dict[str, Any]
    """Where they come from, for the manifest of the new run."""
    seed: int | None = None
    """The one that all new seeds begin with; None: each begins with the seed of its own number."""

    def fitted(self, like: TrainingState, seeds: Sequence[int]) -> "Start":
        """The arrays that training takes, one for each new seed; `like` has the shapes of the new
        run."""
        sources = list(seeds) if self.seed is None else [self.seed] * len(seeds)
        if missing := [seed for seed in sources if seed not in self.seeds]:
            known = ", ".join(map(str, self.seeds))
            raise CanaryError(
                f"{self.name} has no seed {missing[0]}, only {known}: train these seeds, or say "
                "which one all begin with (--seed)."
            )
        leaves = dict(named_leaves(like))
        needed = [name for name in (leaves | self.arrays) if name.startswith(POLICY)]
        rest = [name for name in leaves if name.startswith(REST)]
        for name in needed:
            if not self._fits(name, leaves):
                found = self.arrays[name].shape[1:] if name in self.arrays else "not there"
                wanted = leaves[name].shape[1:] if name in leaves else "not there"
                raise CanaryError(
                    f"Training cannot begin with {self.name}: {name.removeprefix('tree.')} is "
                    f"{found} and must be {wanted}. A warm start needs observations, actions and "
                    "hidden layers (algo.hidden) of the same sizes."
                )
        has_rest = all(self._fits(name, leaves) for name in rest)
        rows = [self.seeds.index(seed) for seed in sources]
        taken = {name: self.arrays[name][rows] for name in needed + (rest if has_rest else [])}
        pairs = {str(new): old for new, old in zip(seeds, sources, strict=True)}
        record = self.record | {"seeds": pairs, "critics": has_rest}
        return replace(self, arrays=taken, record=record)

    def begin(self, states: TrainingState) -> TrainingState:
        """Fresh states with the arrays of a fitted start in place of their own."""
        taken = [jnp.asarray(self.arrays.get(name, leaf)) for name, leaf in named_leaves(states)]
        return jax.tree.unflatten(jax.tree.structure(states), taken)

    def _fits(self, name: str, leaves: dict[str, Any]) -> bool:
        """Whether an array can take the place of the leaf of its name."""
        if name not in self.arrays or name not in leaves:
            return False
        found, leaf = self.arrays[name], leaves[name]
        return (found.shape[1:], str(found.dtype)) == (leaf.shape[1:], str(leaf.dtype))


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
