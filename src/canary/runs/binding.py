"""What binds a checkpoint to its run: the update that it is of, and the configuration that it was trained with."""

from pathlib import Path
from typing import Any

import numpy as np

from canary.config.config import RunConfig, config_to_dict
from canary.errors import CanaryError
from canary.runs.checkpoint import checkpoint_path
from canary.runs.manifest import differences


def check_binding(config: RunConfig, path: Path, tree: Any, metadata: dict[str, Any]) -> None:
    """Raise a sentence unless a checkpoint is of the update that it names and of the configuration that is used now."""
    iteration = metadata.get("iteration")
    if type(iteration) is not int or not 0 <= iteration <= config.training.updates:
        raise CanaryError(f"Checkpoint {path} is damaged (it says that it is of update {iteration!r:.20}).")
    if checkpoint_path(path.parent, iteration) != path:
        raise CanaryError(
            f"Checkpoint {path} is damaged (it is of update {iteration}, which its name denies)."
        )
    if "config" not in metadata:
        return  # of an older version
    done = np.asarray(tree.terms.iteration)
    if not (done == iteration).all():
        raise CanaryError(f"Checkpoint {path} is damaged (its state is of update {int(done.flat[0])}).")
    found, original = config_to_dict(config), metadata["config"]
    if _was_extended(original, found):
        found["training"]["total_steps"] = original["training"]["total_steps"]
    if getattr(config, "environment_changes", ()):
        found["environment"] = original["environment"]  # a change that was accepted by name
    # A later version may have settings that were not there when the run began; those that were must be as they were.
    changed = [text for text in differences(original, found) if not text.endswith(" is new")]
    if changed:
        raise CanaryError(
            f"Checkpoint {path} was trained with another configuration: {changed[0]}; restore config.json."
        )


def _was_extended(original: Any, found: dict[str, Any]) -> bool:
    """Whether the plan is longer now than when the checkpoint was written (`extension`)."""
    training = original.get("training") if isinstance(original, dict) else None
    planned = training.get("total_steps") if isinstance(training, dict) else None
    return isinstance(planned, int) and planned < found["training"]["total_steps"]
