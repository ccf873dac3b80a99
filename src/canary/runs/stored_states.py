"""The stored states of a run: which exist, whether one belongs to the run, and how they are loaded.

The newest are in RUN/checkpoints. Those after equal parts of training (`keep_checkpoints`) stay in
RUN/kept, so that the policy at a step can be loaded. A checkpoint is bound to its run by its update
and by the configuration.
"""

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from canary.config.config import RunConfig, config_to_dict
from canary.config.run_config import TrainingConfig
from canary.errors import CanaryError
from canary.runs import checkpoint
from canary.runs.devices import prepare_devices
from canary.runs.files import make_folder
from canary.runs.seeds import SeedGroups, make_groups
from canary.runs.settings import differences
from canary.training import TrainingState

NEWEST, KEPT = "checkpoints", "kept"


def next_kept(training: TrainingConfig, iteration: int) -> int:
    """The next update after `iteration` whose state is kept, or the last update."""
    parts, updates = training.keep_checkpoints, training.updates
    places = (-(-part * updates // parts) for part in range(1, parts + 1))
    return next((place for place in places if place > iteration), updates)


def is_kept(training: TrainingConfig, iteration: int) -> bool:
    return training.keep_checkpoints > 0 and next_kept(training, iteration - 1) == iteration


def store(
    run: Path, config: RunConfig, states: TrainingState, iteration: int, *, keep: bool
) -> None:
    """Save the states after `iteration` updates. The one that is kept comes first: training goes on
    from the other, and would not save it again."""
    metadata = {"config": config_to_dict(config)}
    for folder in (*((run / KEPT,) if keep else ()), run / NEWEST):
        make_folder(folder, within=run)
        path = checkpoint.checkpoint_path(folder, iteration)
        checkpoint.save(path, states, metadata=metadata, within=run)


def stored_updates(run: Path) -> dict[int, Path]:
    """The stored states of a run by updates done."""
    paths = [*checkpoint.checkpoints(run / NEWEST), *checkpoint.checkpoints(run / KEPT)]
    return {int(path.stem.partition("-")[2]): path for path in sorted(paths, reverse=True)}


def stored_at(config: RunConfig, run: Path, step: int) -> Path:
    """The state after `step` environment steps per seed, or a sentence that lists those that
    exist."""
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
    """The newest intact states, or those at a `step`, stacked; their update; and a sentence for
    each checkpoint that was skipped."""
    prepare_devices()
    groups = make_groups(config)
    try:
        if step is None:
            return newest(config, run, groups)
        path = stored_at(config, run, step)
        tree, metadata = checkpoint.load(path, groups.structure())
        check_binding(config, path, tree, metadata)
        return tree, _update_of(tree), []
    finally:
        groups.close()


def newest(config: RunConfig, run: Path, groups: SeedGroups) -> tuple[Any, int, list[str]]:
    tree, _, used, skipped = checkpoint.newest_intact(
        run / NEWEST, groups.structure(), partial(check_binding, config)
    )
    return tree, _update_of(tree), [f"{reason} Using {used.name} instead." for reason in skipped]


def _update_of(tree: Any) -> int:
    return int(np.asarray(tree.terms.iteration)[0])


def check_binding(config: RunConfig, path: Path, tree: Any, metadata: dict[str, Any]) -> None:
    """Raise a sentence unless a checkpoint is of the update that its name says, and of this
    configuration."""
    if checkpoint.checkpoint_path(path.parent, _update_of(tree)) != path:
        raise CanaryError(
            f"Checkpoint {path} is damaged (its state is of update {_update_of(tree)})."
        )
    changed = [
        text
        for text in differences(metadata.get("config"), config_to_dict(config))
        if not text.endswith(" is new")  # a later version may have more settings
        and not text.startswith("training.total_steps ")  # it may have been extended since
        and not (config.environment_changes and text.startswith("environment."))  # accepted
    ]
    if changed:
        raise CanaryError(
            f"Checkpoint {path} was trained with another configuration: {changed[0]}; restore "
            "config.json."
        )
