"""The states of a run that are stored: which there are, whether one is of this run, and how it
comes back to life.

The newest are in RUN/checkpoints; those after equal parts of training are kept for good in
RUN/kept, so that the policy at a step can be loaded. A checkpoint is bound to its run by the update
that it is of and by the configuration.
"""

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from canary.config.config import RunConfig, config_to_dict
from canary.config.run_config import TrainingConfig
from canary.errors import CanaryError
from canary.runs import checkpoint
from canary.runs.building import make_groups
from canary.runs.devices import prepare_devices
from canary.runs.manifest import differences
from canary.runs.seeds import SeedGroups

FOLDER = "kept"


def next_kept(training: TrainingConfig, iteration: int) -> int:
    """The next update, after `iteration`, whose state is kept; that of the last update is always
    stored."""
    parts, updates = training.keep_checkpoints, training.updates
    places = (-(-part * updates // parts) for part in range(1, parts + 1))
    return next((place for place in places if place > iteration), updates)


def is_kept(training: TrainingConfig, iteration: int) -> bool:
    return training.keep_checkpoints > 0 and next_kept(training, iteration - 1) == iteration


def stored_updates(run: Path) -> dict[int, Path]:
    """The states that a run has, by updates done: the newest ones, and those that were kept."""
    paths = [*checkpoint.checkpoints(run / "checkpoints"), *checkpoint.checkpoints(run / FOLDER)]
    return {int(path.stem.partition("-")[2]): path for path in sorted(paths, reverse=True)}


def stored_at(config: RunConfig, run: Path, step: int) -> Path:
    """The state after so many environment steps per seed, or a sentence that says which there
    are."""
    batch, stored = config.training.batch, stored_updates(run)
    if step % batch == 0 and step // batch in stored:
        return stored[step // batch]
    steps = [f"{update * batch:,}" for update in sorted(stored)]
    raise CanaryError(
        f"{run} has no state at step {step:,}; it has those at {', '.join(steps) or 'none'}. "
        "`--set training.keep_checkpoints=10` keeps ten over a training."
    )


def load_states(
    config: RunConfig, run: Path, step: int | None = None
) -> tuple[Any, int, list[str]]:
    """Stacked states and iteration of the newest intact checkpoint, and a sentence for each that
    was skipped.

    With a `step`, those after so many environment steps per seed.
    """
    prepare_devices()
    groups = make_groups(config)
    try:
        if step is None:
            return newest(config, run, groups)
        path = stored_at(config, run, step)
        tree, metadata = checkpoint.load(path, groups.structure())
        check_binding(config, path, tree, metadata)
        return tree, int(metadata["iteration"]), []
    finally:
        groups.close()


def newest(config: RunConfig, run: Path, groups: SeedGroups) -> tuple[Any, int, list[str]]:
    tree, metadata, used, skipped = checkpoint.newest_intact(
        run / "checkpoints", groups.structure(), partial(check_binding, config)
    )
    notes = [f"{reason} Using {used.name} instead." for _, reason in skipped]
    return tree, int(metadata["iteration"]), notes


def check_binding(config: RunConfig, path: Path, tree: Any, metadata: dict[str, Any]) -> None:
    """Raise a sentence unless a checkpoint is of the update that it names and of the configuration
    that is used now."""
    iteration = metadata.get("iteration")
    if type(iteration) is not int or not 0 <= iteration <= config.training.updates:
        raise CanaryError(
            f"Checkpoint {path} is damaged (it says that it is of update {iteration!r:.20})."
        )
    if checkpoint.checkpoint_path(path.parent, iteration) != path:
        raise CanaryError(
            f"Checkpoint {path} is damaged (it is of update {iteration}, which its name denies)."
        )
    if "config" not in metadata:
        return  # of an older version
    done = np.asarray(tree.terms.iteration)
    if not (done == iteration).all():
        raise CanaryError(
            f"Checkpoint {path} is damaged (its state is of update {int(done.flat[0])})."
        )
    found, original = config_to_dict(config), metadata["config"]
    if _was_extended(original, found):
        found["training"]["total_steps"] = original["training"]["total_steps"]
    if getattr(config, "environment_changes", ()):
        found["environment"] = original["environment"]  # a change that was accepted by name
    # A later version may have settings that were not there when the run began; those that were must
    # be as they were.
    changed = [text for text in differences(original, found) if not text.endswith(" is new")]
    if changed:
        raise CanaryError(
            f"Checkpoint {path} was trained with another configuration: {changed[0]}; restore "
            "config.json."
        )


def _was_extended(original: Any, found: dict[str, Any]) -> bool:
    """Whether the plan is longer now than when the checkpoint was written (`extension`)."""
    training = original.get("training") if isinstance(original, dict) else None
    planned = training.get("total_steps") if isinstance(training, dict) else None
    return isinstance(planned, int) and planned < found["training"]["total_steps"]
