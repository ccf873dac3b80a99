"""Checkpoints: the whole state of a run as one .npz file that holds numbers and nothing else.

The archive has a checksum per array, opens with numpy alone, and cannot execute code: arrays of
objects (pickles) are neither written nor read. Each leaf of the tree is a member named by its path.
The member `metadata` is JSON: the format version, the name, shape and type of every leaf, and what
the caller adds. Loading fills a tree of known structure, so a file of another configuration is
refused.
"""

import contextlib
import io
import json
import math
import re
import zipfile
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
    records, arrays = [], {}
    for name, leaf in _named_leaves(tree):
        if not isinstance(leaf, jax.Array | np.ndarray) or leaf.dtype == object:
            raise TypeError(f"{name} is not an array of numbers but {leaf!r}")
        is_key = jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)
        data = np.asarray(jax.random.key_data(leaf) if is_key else leaf)
        arrays[name] = data.view(_stored_dtype(data.dtype))
        record = {"name": name, "shape": list(leaf.shape), "dtype": str(leaf.dtype)}
        records.append(record | ({"key": str(jax.random.key_impl(leaf))} if is_key else {}))
    header = {"version": FORMAT_VERSION, "leaves": records, "metadata": metadata}
    arrays["metadata"] = np.frombuffer(json.dumps(header, allow_nan=False).encode(), np.uint8)
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, **arrays)
    write_atomically(path, buffer.getvalue(), within=within)


def load(path: Path, like: PyTree) -> tuple[PyTree, dict[str, Any]]:
    """The tree and the metadata stored in `path`, or a sentence that says why not.

    `like` has the structure of the tree, and as leaves arrays or `jax.ShapeDtypeStruct`s of the
    expected shapes and types. Leaves come back as JAX arrays, and as numpy arrays where `like` has
    those.
    """
    expected = _named_leaves(like)
    with _opened(path) as (archive, header):
        _check_header(path, header, [name for name, _ in expected])
        leaves = [
            _restore(path, archive, record, leaf)
            for record, (_, leaf) in zip(header["leaves"], expected, strict=True)
        ]
        return jax.tree.unflatten(jax.tree.structure(like), leaves), header["metadata"]


def read_arrays(path: Path) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """All arrays of a checkpoint by name, and its metadata, whatever its structure is. Random keys
    are left out."""
    with _opened(path) as (archive, header):
        names = [record["name"] for record in header["leaves"] if "key" not in record]
        _check_header(path, header, [record["name"] for record in header["leaves"]])
        return {name: _read_member(archive, name, path) for name in names}, header["metadata"]


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[tuple[zipfile.ZipFile, dict[str, Any]]]:
    """The archive and its header; whatever is wrong with it ends in a sentence."""
    try:
        with zipfile.ZipFile(io.BytesIO(read_bytes(path))) as archive:
            yield archive, json.loads(_read_member(archive, "metadata", path).tobytes())
    except CanaryError:
        raise
    except FileNotFoundError as error:
        raise CanaryError(f"There is no checkpoint {path}.") from error
    except Exception as error:  # a damaged archive can fail anywhere in the zip and header readers
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


def _stored_dtype(dtype: np.dtype) -> np.dtype:
    """The .npy format does not have bfloat16 and its like: their bits are stored as integers."""
    return np.dtype(f"u{dtype.itemsize}") if dtype.kind == "V" else dtype


def _check_header(path: Path, header: dict[str, Any], names: list[str]) -> None:
    if header["version"] != FORMAT_VERSION:
        raise CanaryError(
            f"Checkpoint {path} has format version {header['version']!r}, but this canary reads "
            f"only version {FORMAT_VERSION}; use the canary that wrote it."
        )
    stored = [record["name"] for record in header["leaves"]]
    if stored != names:
        odd = (sorted(set(stored) ^ set(names)) or ["the order of its arrays"])[0]
        raise _other_configuration(path, f"{odd} differs")


def _other_configuration(path: Path, reason: str) -> CanaryError:
    return CanaryError(
        f"Checkpoint {path} belongs to another configuration ({reason}); use the one it was made "
        "with."
    )


def _read_member(archive: zipfile.ZipFile, name: str, path: Path) -> np.ndarray:
    """One array, its checksum verified; it takes no more memory than the file has bytes."""
    member = archive.getinfo(f"{name}.npy")
    if member.compress_type != zipfile.ZIP_STORED:
        raise ValueError(f"{name} is compressed")
    data = archive.read(member)
    buffer = io.BytesIO(data)
    if np.lib.format.read_magic(buffer) != (1, 0):
        raise ValueError(f"{name} has an unknown array format")
    shape, fortran_order, dtype = np.lib.format.read_array_header_1_0(buffer)
    if dtype.hasobject:
        raise CanaryError(f"Checkpoint {path} holds pickled objects, which could run code.")
    if math.prod(shape) * dtype.itemsize != len(data) - buffer.tell():
        raise ValueError(f"{name} is too short or too long")
    order = "F" if fortran_order else "C"
    return np.ndarray(shape, dtype, data, offset=buffer.tell(), order=order).copy()


def _restore(path: Path, archive: zipfile.ZipFile, record: dict[str, Any], like: Any) -> Any:
    """One leaf, if it is what `like` asks for."""
    if (record["shape"], record["dtype"]) != (list(like.shape), str(like.dtype)):
        found = f"{record['dtype']} of shape {tuple(record['shape'])}"
        wanted = f"{like.dtype} of shape {tuple(like.shape)}"
        raise _other_configuration(path, f"{record['name']} is {found}, not {wanted}")
    is_key = jax.dtypes.issubdtype(like.dtype, jax.dtypes.prng_key)
    data = _read_member(archive, record["name"], path)
    expected = jax.eval_shape(jax.random.key_data, like) if is_key else like
    dtype = np.dtype(expected.dtype)
    if (data.shape, data.dtype) != (expected.shape, _stored_dtype(dtype)):
        raise ValueError(f"{record['name']} is not what the metadata say")
    data = data.view(dtype)
    if isinstance(like, np.ndarray):
        return data
    array = jnp.array(data)
    return jax.random.wrap_key_data(array, impl=record["key"]) if is_key else array
