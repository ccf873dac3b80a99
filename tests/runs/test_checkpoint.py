"""Checkpoints: exact round trips, every damage detected, hostile files refused."""

import os
import random
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
    path, tree = tmp_path / "checkpoint-00000120.npz", example()
    checkpoint.save(path, tree)
    assert_same(checkpoint.load(path, example(1)), tree)
    without_numpy = {"record": tree["record"]}
    loaded = checkpoint.load(path, jax.eval_shape(lambda: without_numpy))
    assert_same(loaded, without_numpy)
    # the restored key is a working typed key
    bits = (jax.random.bits(each["record"].key[1]) for each in (loaded, tree))
    assert jnp.array_equal(*bits)


def test_no_damage_passes(tmp_path: Path):
    """Cut anywhere, or with one bit flipped."""
    path, tree, refused = tmp_path / "broken.npz", example(), 0
    checkpoint.save(path, tree)
    data, places = path.read_bytes(), random.Random(0)
    for length in (0, 1, len(data) - 1, *places.sample(range(len(data)), 20)):
        path.write_bytes(data[:length])
        with pytest.raises(CanaryError, match=r"broken\.npz is damaged"):
            checkpoint.load(path, example())
    for position in places.sample(range(len(data)), 150):
        flipped = data[position] ^ (1 << (position % 8))
        path.write_bytes(data[:position] + bytes([flipped]) + data[position + 1 :])
        try:
            assert_same(checkpoint.load(path, tree), tree)  # a byte that carries nothing: a date
        except CanaryError:
            refused += 1
    assert refused > 75


class Hostile:
    """Creates a file when it is unpickled."""

    def __init__(self, trap: Path):
        self.trap = trap

    def __reduce__(self):
        return os.mkdir, (str(self.trap),)


def test_a_hostile_file_is_refused_and_runs_nothing(tmp_path: Path):
    trap, path = tmp_path / "trap", tmp_path / "hostile.npz"
    array = np.array([Hostile(trap)], dtype=object)
    np.savez(path, allow_pickle=True, **{"tree['x']": array})
    with pytest.raises(CanaryError, match="damaged"):
        checkpoint.load(path, {"x": jnp.zeros(1)})
    assert not trap.exists()
    np.load(path, allow_pickle=True)["tree['x']"]  # the trap works, or the test would prove nothing
    assert trap.exists()


@pytest.mark.parametrize(
    ("like", "reason"),
    [
        ({"x": jnp.zeros((2, 4))}, r"tree\['x'\] is float32 of shape \(2, 3\), not float32 of"),
        ({"y": jnp.zeros((2, 3))}, r"tree\['y'\] is nothing"),
    ],
)
def test_another_configuration_is_refused(tmp_path: Path, like: Any, reason: str):
    path = tmp_path / "checkpoint-00000001.npz"
    checkpoint.save(path, {"x": jnp.zeros((2, 3))})
    with pytest.raises(CanaryError, match=f"another configuration .*{reason}"):
        checkpoint.load(path, like)


def test_prune_keeps_the_newest(tmp_path: Path):
    for update in (0, 1, 2, 10, 9):
        checkpoint.save(checkpoint.checkpoint_path(tmp_path, update), {})
    kept = checkpoint.checkpoint_path(tmp_path, 1, checkpoint.KEPT)
    checkpoint.save(kept, {})
    (kept.parent / "notes.txt").write_text("mine")
    assert checkpoint.checkpoints(tmp_path)[1] == kept
    assert list(checkpoint.stored_updates(tmp_path)) == [10, 9, 2, 1]
    checkpoint.prune(tmp_path)
    assert list(checkpoint.checkpoints(tmp_path)) == [10, 9, 1]
    assert (kept.parent / "notes.txt").exists()
