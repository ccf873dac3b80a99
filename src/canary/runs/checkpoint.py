"""The stored states of a run, each an .npz file that holds numbers and nothing else.

The newest two are in RUN/checkpoints. Those after equal parts of training (`keep_checkpoints`) stay
in RUN/kept, so that the policy at a step can be loaded. Each leaf of the tree is a member named by
its path. The archive has a checksum per array, opens with numpy alone, and cannot execute code:
arrays of objects (pickles) are neither written nor read.
"""

import contextlib
import io
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from canary.config.run_config import RunConfig, TrainingConfig
from canary.errors import CanaryError
from canary.runs.devices import prepare_devices
from canary.runs.files import damaged, make_folder, read_bytes, write_atomically
from canary.runs.seeds import make_groups
from canary.training import TrainingState

NEWEST, KEPT = "checkpoints", "kept"


def checkpoint_path(directory: Path, iteration: int) -> Path:
    """Where the state after `iteration` updates is kept."""
    return directory / f"checkpoint-{iteration:08d}.npz"


def checkpoints(directory: Path) -> list[Path]:
    """The checkpoints in a directory, newest first."""
    found = [
        (int(match[1]), path)
        for path in directory.glob("*")
        if (match := re.fullmatch(r"checkpoint-(\d+)\.npz", path.name))
    ]
    return [path for _, path in sorted(found, reverse=True)]


def stored_updates(run: Path) -> dict[int, Path]:
    """The stored states of a run by updates done."""
    paths = [*checkpoints(run / NEWEST), *checkpoints(run / KEPT)]
    return {int(path.stem.partition("-")[2]): path for path in sorted(paths, reverse=True)}


def next_kept(training: TrainingConfig, iteration: int) -> int:
    """The next update after `iteration` whose state is kept, or the last update."""
    parts, updates = training.keep_checkpoints, training.updates
    places = (-(-part * updates // parts) for part in range(1, parts + 1))
    return next((place for place in places if place > iteration), updates)


def is_kept(training: TrainingConfig, iteration: int) -> bool:
    return training.keep_checkpoints > 0 and next_kept(training, iteration - 1) == iteration


def store(run: Path, training: TrainingConfig, states: TrainingState, iteration: int) -> None:
    """Save the states after `iteration` updates. The one that is kept comes first: training
    resumes from the other, and would not save it again."""
    for name in (KEPT, NEWEST) if is_kept(training, iteration) else (NEWEST,):
        save(checkpoint_path(run / name, iteration), states)


def prune(directory: Path) -> None:
    """Remove all but the newest two checkpoints."""
    for path in checkpoints(directory)[2:]:
        with contextlib.suppress(OSError):
            path.unlink()


def load_states(
    config: RunConfig, run: Path, step: int | None = None
) -> tuple[Any, int, list[str]]:
    """The newest intact states, or those after `step` environment steps per seed, stacked; their
    update; and a sentence for each checkpoint that was skipped."""
    prepare_devices()
    structure = make_groups(config).structure()
    if step is None:
        return newest_states(run, structure)
    batch, stored = config.training.batch, stored_updates(run)
    if step % batch or step // batch not in stored:
        steps = [f"{update * batch:,}" for update in sorted(stored)]
        raise CanaryError(
            f"{run} has no state at step {step:,}; it has those at {', '.join(steps) or 'none'}. "
            "`--set training.keep_checkpoints=10` keeps ten over a training."
        )
    return load(stored[step // batch], structure), step // batch, []


def newest_states(run: Path, like: PyTree) -> tuple[Any, int, list[str]]:
    """The newest checkpoint that can be used; see `load_states`."""
    states, notes = newest(run, lambda path: load(path, like))
    return states, int(np.asarray(states.terms.iteration)[0]), notes


def newest(run: Path, read: Callable[[Path], Any]) -> tuple[Any, list[str]]:
    """The newest checkpoint that can be read, and a sentence for each that was skipped."""
    skipped: list[str] = []
    for path in checkpoints(run / NEWEST):
        try:
            return read(path), [f"{why} Using {path.name} instead." for why in skipped]
        except CanaryError as error:
            skipped.append(str(error))
    why = f"of the newest: {skipped[0]}" if skipped else "there is none."
    raise CanaryError(f"No checkpoint in {run / NEWEST} can be used; {why}")


def save(path: Path, tree: PyTree) -> None:
    """Write `tree`, whose leaves must all be arrays of numbers."""
    buffer = io.BytesIO()
    arrays = {
        name: np.asarray(jax.random.key_data(leaf) if _is_key(leaf) else leaf)
        for name, leaf in named_leaves(tree)
    }
    np.savez(buffer, allow_pickle=False, **arrays)
    make_folder(path.parent)
    write_atomically(path, buffer.getvalue())


def load(path: Path, like: PyTree) -> PyTree:
    """The tree in `path`, or a sentence that says why not. `like` has its structure, and leaves of
    the expected shapes and types."""
    arrays, leaves = read_arrays(path), []
    for name, leaf in named_leaves(like):
        wanted = jax.eval_shape(jax.random.key_data, leaf) if _is_key(leaf) else leaf
        found = arrays.get(name)
        if found is None or (found.shape, found.dtype) != (wanted.shape, wanted.dtype):
            has = "nothing" if found is None else f"{found.dtype} of shape {found.shape}"
            raise CanaryError(
                f"Checkpoint {path} belongs to another configuration ({name} is {has}, not "
                f"{wanted.dtype} of shape {tuple(wanted.shape)}); use the one it was made with."
            )
        array = jnp.array(found)
        if _is_key(leaf):
            array = jax.random.wrap_key_data(array, impl="threefry2x32")
        leaves.append(array)
    return jax.tree.unflatten(jax.tree.structure(like), leaves)


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """All arrays of a checkpoint by name, whatever its structure is."""
    try:
        with np.load(io.BytesIO(read_bytes(path)), allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    except FileNotFoundError as error:
        raise CanaryError(f"There is no checkpoint {path}.") from error
    except Exception as error:  # a damaged archive can fail anywhere in the zip and array readers
        raise damaged(path, error, "use an older one") from error


def named_leaves(tree: PyTree, prefix: str = "tree") -> list[tuple[str, Any]]:
    """The leaves of a tree with their names in a checkpoint."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    return [(prefix + jax.tree_util.keystr(path), leaf) for path, leaf in leaves]


def _is_key(leaf: Any) -> bool:
    return jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)
