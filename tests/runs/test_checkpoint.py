"""Checkpoints: exact round trips, every damage detected, hostile files refused, older files used
instead."""

import io
import os
import pickle
import random
import zipfile
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from canary.errors import CanaryError
from canary.runs import checkpoint
from problems.trees import assert_same


class Record(eqx.Module):
    weight: jax.Array
    key: jax.Array
    count: jax.Array


def example(seed: int = 0) -> Any:
    key = jax.random.key(seed)
    record = Record(
        jax.random.normal(key, (3, 4)), jax.random.split(key, 2), jnp.asarray(7, jnp.int32)
    )
    return {
        "record": record,
        "moments": (np.arange(3, dtype=np.int32), np.zeros((2, 0), bool)),
        "/é'": [np.asfortranarray(np.arange(6, dtype=np.int8).reshape(2, 3))],
        "none": None,
    }


def test_round_trip_into_arrays_and_into_shapes(tmp_path: Path):
    path, tree = checkpoint.checkpoint_path(tmp_path, 120), example()
    checkpoint.save(path, tree, metadata={"iteration": 120, "note": "é"})
    assert path.name == "checkpoint-00000120.npz"
    loaded, metadata = checkpoint.load(path, example(1))
    assert metadata == {"iteration": 120, "note": "é"}
    assert_same(loaded, tree)
    without_numpy = {"record": tree["record"]}
    checkpoint.save(path, without_numpy, metadata={})
    loaded, _ = checkpoint.load(path, jax.eval_shape(lambda: without_numpy))
    assert_same(loaded, without_numpy)
    # the restored key is a working typed key
    assert jnp.array_equal(
        jax.random.bits(loaded["record"].key[1]), jax.random.bits(tree["record"].key[1])
    )


def test_truncation_anywhere_is_detected(tmp_path: Path):
    path, broken = tmp_path / "whole.npz", tmp_path / "broken.npz"
    checkpoint.save(path, example(), metadata={})
    data = path.read_bytes()
    ends = random.Random(0).sample(range(len(data)), 36)
    for length in (0, 1, len(data) // 2, len(data) - 1, *ends):
        broken.write_bytes(data[:length])
        with pytest.raises(CanaryError, match=r"broken\.npz is damaged"):
            checkpoint.load(broken, example())


def test_a_flipped_bit_anywhere_never_changes_what_is_loaded(tmp_path: Path):
    path, tree = tmp_path / "flipped.npz", example()
    checkpoint.save(path, tree, metadata={"iteration": 3})
    data = path.read_bytes()
    refused = 0
    for position in random.Random(1).sample(range(len(data)), 150):
        damaged = bytearray(data)
        damaged[position] ^= 1 << (position % 8)
        path.write_bytes(damaged)
        try:
            loaded, metadata = checkpoint.load(path, tree)
        except CanaryError:
            refused += 1
        else:  # a byte that carries nothing, such as a date
            assert_same(loaded, tree)
            assert metadata == {"iteration": 3}
    assert refused > 75


class Hostile:
    """Creates a file when it is unpickled."""

    def __init__(self, trap: Path):
        self.trap = trap

    def __reduce__(self):
        return os.mkdir, (str(self.trap),)


def object_array(trap: Path) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, np.array([Hostile(trap)], dtype=object), allow_pickle=True)
    return buffer.getvalue()


@pytest.mark.parametrize("where", ["leaf", "metadata", "file"])
def test_a_hostile_file_is_refused_and_runs_nothing(tmp_path: Path, where: str):
    trap, path, tree = tmp_path / "trap", tmp_path / "hostile.npz", {"x": jnp.zeros(1)}
    checkpoint.save(path, tree, metadata={})
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    pickled = pickle.dumps(Hostile(trap))
    if where != "file":
        members[{"leaf": "tree['x'].npy", "metadata": "metadata.npy"}[where]] = object_array(trap)
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    if where == "file":
        path.write_bytes(pickled)
    with pytest.raises(CanaryError, match="damaged"):
        checkpoint.load(path, tree)
    assert not trap.exists()
    pickle.loads(pickled)  # the trap itself works, or else the test would prove nothing
    assert trap.exists()


@pytest.mark.parametrize(
    ("like", "reason"),
    [
        ({"x": jnp.zeros((2, 4))}, r"tree\['x'\] is float32 of shape \(2, 3\), not float32 of"),
        ({"y": jnp.zeros((2, 3))}, r"tree\['x'\] differs"),
    ],
)
def test_another_configuration_is_refused(tmp_path: Path, like: Any, reason: str):
    path = tmp_path / "checkpoint-00000001.npz"
    checkpoint.save(path, {"x": jnp.zeros((2, 3))}, metadata={})
    with pytest.raises(CanaryError, match=f"another configuration .*{reason}"):
        checkpoint.load(path, like)


def test_prune_keeps_the_newest(tmp_path: Path):
    for iteration in (1, 2, 10, 9):
        checkpoint.save(checkpoint.checkpoint_path(tmp_path, iteration), {}, metadata={})
    (tmp_path / "notes.txt").write_text("mine")
    checkpoint.prune(tmp_path)
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["checkpoint-00000009.npz", "checkpoint-00000010.npz", "notes.txt"]
