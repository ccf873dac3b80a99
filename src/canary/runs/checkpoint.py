"""Checkpoints: the whole state of a run as one .npz file that holds numbers and nothing else.

The archive has a checksum per array, opens with numpy alone, and cannot execute code: arrays of
objects (pickles) are neither written nor read. Each leaf of the tree is a member named by its path.
The member `metadata` is JSON: the format version, and what the caller adds. Loading fills a tree of
known structure, so a file of another configuration is refused.
"""

import contextlib
import io
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from canary.errors import CanaryError
from canary.runs.files import read_bytes, write_atomically

FORMAT_VERSION = 1
Check = Callable[[Path, PyTree, dict[str, Any]], None]
"""Raises a sentence if a readable checkpoint must not be used."""


def checkpoint_path(directory: Path, iteration: int) -> Path:
    """Where the state after `iteration` iterations is kept."""
    return directory / f"checkpoint-{iteration:08d}.npz"


def checkpoints(directory: Path) -> list[Path]:
    """The checkpoints in a directory, newest first."""
    found = [
        (int(match[1]), path)
        for path in directory.glob("*")
        if (match := re.fullmatch(r"checkpoint-(\d+)\.npz", path.name))
    ]
    return [path for _, path in sorted(found, reverse=True)]


def save(path: Path, tree: PyTree, *, metadata: dict[str, Any], within: Path | None = None) -> None:
    """Write `tree`, whose leaves must all be arrays, and `metadata`, which must be JSON data."""
    header = json.dumps({"version": FORMAT_VERSION, "metadata": metadata}, allow_nan=False)
    arrays = {"metadata": np.frombuffer(header.encode(), np.uint8)}
    for name, leaf in _named_leaves(tree):
        if not isinstance(leaf, jax.Array | np.ndarray) or leaf.dtype == object:
            raise TypeError(f"{name} is not an array of numbers but {leaf!r}")
        arrays[name] = np.asarray(jax.random.key_data(leaf) if _is_key(leaf) else leaf)
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, **arrays)
    write_atomically(path, buffer.getvalue(), within=within)


def load(path: Path, like: PyTree) -> tuple[PyTree, dict[str, Any]]:
    """The tree and the metadata stored in `path`, or a sentence that says why not.

    `like` has the structure of the tree, and as leaves arrays or `jax.ShapeDtypeStruct`s of the
    expected shapes and types. Leaves come back as JAX arrays, and as numpy arrays where `like` has
    those.
    """
    expected = dict(_named_leaves(like))
    with _opened(path) as (archive, metadata):
        if odd := expected.keys() ^ (set(archive.files) - {"metadata"}):
            raise _other_configuration(path, f"{min(odd)} differs")
        leaves = [_restored(path, name, archive[name], leaf) for name, leaf in expected.items()]
        return jax.tree.unflatten(jax.tree.structure(like), leaves), metadata


def read_arrays(path: Path) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """All arrays of a checkpoint by name, and its metadata, whatever its structure is."""
    with _opened(path) as (archive, metadata):
        return {name: archive[name] for name in archive.files if name != "metadata"}, metadata


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[tuple[Any, dict[str, Any]]]:
    """The archive and its metadata; whatever is wrong with it ends in a sentence."""
    try:
        with np.load(io.BytesIO(read_bytes(path)), allow_pickle=False) as archive:
            if any(member.compress_type for member in archive.zip.infolist()):
                raise ValueError("its arrays are compressed")  # a small file could fill the memory
            header = json.loads(archive["metadata"].tobytes())
            if header["version"] != FORMAT_VERSION:
                raise CanaryError(
                    f"Checkpoint {path} has format version {header['version']!r:.20}, but this "
                    f"canary reads only version {FORMAT_VERSION}; use the canary that wrote it."
                )
            yield archive, header["metadata"]
    except CanaryError:
        raise
    except FileNotFoundError as error:
        raise CanaryError(f"There is no checkpoint {path}.") from error
    except Exception as error:  # a damaged archive can fail anywhere in the zip and array readers
        reason = str(error) or type(error).__name__
        raise CanaryError(f"Checkpoint {path} is damaged ({reason}); use an older one.") from error


def newest_intact(
    directory: Path, like: PyTree, check: Check = lambda path, tree, metadata: None
) -> tuple[PyTree, dict[str, Any], Path, list[str]]:
    """The newest checkpoint that can be loaded and passes `check`: its tree, metadata and path, and
    a sentence for each one skipped."""
    skipped: list[str] = []
    for path in checkpoints(directory):
        try:
            tree, metadata = load(path, like)
            check(path, tree, metadata)
        except CanaryError as error:
            skipped.append(str(error))
        else:
            return tree, metadata, path, skipped
    if not skipped:
        raise CanaryError(f"There is no checkpoint in {directory}; start a new run.")
    raise CanaryError(f"No checkpoint in {directory} can be used; of the newest: {skipped[0]}")


def prune(directory: Path, keep: int = 2) -> None:
    """Remove all but the newest `keep` checkpoints."""
    for path in checkpoints(directory)[keep:]:
        with contextlib.suppress(OSError):
            path.unlink()


def _named_leaves(tree: PyTree) -> list[tuple[str, Any]]:
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    return [("tree" + jax.tree_util.keystr(path), leaf) for path, leaf in leaves]


def _is_key(leaf: Any) -> bool:
    return jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _restored(path: Path, name: str, found: np.ndarray, like: Any) -> Any:
    """One leaf, if it has the shape and type that `like` asks for."""
    wanted = jax.eval_shape(jax.random.key_data, like) if _is_key(like) else like
    if found.dtype.kind == "V":  # the .npy format does not know bfloat16 and its like
        found = found.view(wanted.dtype)
    if (found.shape, found.dtype) != (wanted.shape, wanted.dtype):
        raise _other_configuration(
            path,
            f"{name} is {found.dtype} of shape {found.shape}, not {wanted.dtype} of shape "
            f"{tuple(wanted.shape)}",
        )
    if isinstance(like, np.ndarray):
        return found
    array = jnp.array(found)
    return jax.random.wrap_key_data(array, impl="threefry2x32") if _is_key(like) else array


def _other_configuration(path: Path, reason: str) -> CanaryError:
    return CanaryError(
        f"Checkpoint {path} belongs to another configuration ({reason}); use the one it was made "
        "with."
    )
