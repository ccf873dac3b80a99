"""States that are kept for good: after equal parts of training, in RUN/kept, so that the policy at a step can be loaded."""

from pathlib import Path

from canary.config.run_config import RunConfig, TrainingConfig
from canary.errors import CanaryError
from canary.runs import checkpoint

FOLDER = "kept"


def next_kept(training: TrainingConfig, iteration: int) -> int:
    """The next update, after `iteration`, whose state is kept; that of the last update is always stored."""
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
    """The state after so many environment steps per seed, or a sentence that says which there are."""
    batch, stored = config.training.batch, stored_updates(run)
    if step % batch == 0 and step // batch in stored:
        return stored[step // batch]
    steps = [f"{update * batch:,}" for update in sorted(stored)]
    raise CanaryError(
        f"{run} has no state at step {step:,}; it has those at {', '.join(steps) or 'none'}. "
        "`--set training.keep_checkpoints=10` keeps ten over a training."
    )
