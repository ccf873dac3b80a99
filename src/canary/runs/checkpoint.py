"""The stored states of a run, each an .npz file of numbers.

    RUN/checkpoints/checkpoint-N.npz    after N updates; the newest two
    RUN/checkpoints/kept-N.npz          after equal parts of training (`keep_checkpoints`); all

Each leaf of the tree is an array named by its path. The archive has a checksum per array, opens
with numpy alone, and cannot execute code: object arrays (pickles) are neither written nor read.
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

from canary.config.run_config import TrainingConfig
from canary.errors import CanaryError
from canary.runs.files import damaged, make_folder, read_bytes, write_atomically

FOLDER, KEPT = "checkpoints", "kept"


def checkpoint_path(run: Path, update: int, kind: str = "checkpoint") -> Path:
    """The path of the state after `update` updates."""
    return run / FOLDER / f"{kind}-{update:08d}.npz"


def checkpoints(run: Path) -> dict[int, Path]:
    """The paths of stored states by number of updates, newest first."""
    found = {}
    for path in sorted((run / FOLDER).glob("*.npz")):  # kept-N replaces checkpoint-N
        if match := re.fullmatch(rf"(?:checkpoint|{KEPT})-(\d+)\.npz", path.name):
            found[int(match[1])] = path
    return dict(sorted(found.items(), reverse=True))


def stored_updates(run: Path) -> dict[int, Path]:
    """The stored states without that of update 0, which is untrained."""
    return {update: path for update, path in checkpoints(run).items() if update}


def next_kept(training: TrainingConfig, update: int) -> int:
    """The next update after this one whose state is kept, or the last update."""
    parts, updates = training.keep_checkpoints, training.updates
    places = (-(-part * updates // parts) for part in range(1, parts + 1))
    return next((place for place in places if place > update), updates)


def is_kept(training: TrainingConfig, update: int) -> bool:
    return training.keep_checkpoints > 0 and next_kept(training, update - 1) == update


def prune(run: Path) -> None:
    """Remove all but the newest two states and those that are kept."""
    for path in list(checkpoints(run).values())[2:]:
        if not path.name.startswith(KEPT):
            with contextlib.suppress(OSError):
                path.unlink()


def newest(run: Path, read: Callable[[Path], Any]) -> tuple[Any, list[str]]:
    """The newest readable state, and a sentence for each damaged one that was skipped."""
    skipped: list[str] = []
    for path in checkpoints(run).values():
        try:
            return read(path), [f"{why} Using {path.name} instead." for why in skipped]
        except CanaryError as error:
            skipped.append(str(error))
    why = f"of the newest: {skipped[0]}" if skipped else "there is none."
    raise CanaryError(f"No checkpoint in {run / FOLDER} can be used; {why}")


def save(path: Path, tree: PyTree) -> None:
    """Write `tree`, whose leaves must be arrays of numbers."""
    buffer = io.BytesIO()
    arrays = {
        name: np.asarray(jax.random.key_data(leaf) if _is_key(leaf) else leaf)
        for name, leaf in named_leaves(tree)
    }
    np.savez(buffer, allow_pickle=False, **arrays)
    make_folder(path.parent)
    write_atomically(path, buffer.getvalue())


def load(path: Path, like: PyTree) -> PyTree:
    """The tree in `path`, with numpy arrays and keys as leaves; raises if it cannot be read. `like`
    has the expected structure, shapes and types."""
    arrays, leaves = read_arrays(path), []
    for name, leaf in named_leaves(like):
        wanted = jax.eval_shape(jax.random.key_data, leaf) if _is_key(leaf) else leaf
        found = arrays.get(name)
        if found is None or (found.shape, found.dtype) != (wanted.shape, wanted.dtype):
            has = "nothing" if found is None else f"{found.dtype} of shape {found.shape}"
            raise CanaryError(
                f"Checkpoint {path} belongs to another configuration ({name} is {has}, not "
                f"{wanted.dtype} of shape {tuple(wanted.shape)}); use that configuration."
            )
        if _is_key(leaf):
            found = jax.random.wrap_key_data(jnp.asarray(found), impl="threefry2x32")
        leaves.append(found)
    return jax.tree.unflatten(jax.tree.structure(like), leaves)


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """All arrays of a state by name."""
    try:
        with np.load(io.BytesIO(read_bytes(path)), allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    except Exception as error:  # a damaged archive can fail anywhere in the zip and array readers
        raise damaged(path, error, "use an older one") from error


def named_leaves(tree: PyTree, prefix: str = "tree") -> list[tuple[str, Any]]:
    """The leaves of a tree with their names in a checkpoint."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    return [(prefix + jax.tree_util.keystr(path), leaf) for path, leaf in leaves]


def _is_key(leaf: Any) -> bool:
    return jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)
