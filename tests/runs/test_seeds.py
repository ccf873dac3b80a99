"""A seed is the same run whatever runs beside it and however its iterations are grouped."""

import json
import os
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import jax
import numpy as np
import pytest

from attacks.warm import WarmGroups
from canary.runs.seeds import SeedGroups, make_trainer
from problems.compilation import optimised
from problems.small_runs import small_config
from problems.terms import terms_of

TESTS = Path(__file__).parents[1]
ITERATIONS = 6
VECTORISED_ITERATIONS = 3


def flat(tree):
    """Arrays of a tree by name; keys as their numbers."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    return {
        jax.tree_util.keystr(path): np.asarray(
            jax.random.key_data(leaf)
            if jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)
            else leaf
        )
        for path, leaf in leaves
    }


def train(seeds, chunks, size, **training):
    """Final states and all records [seed, iteration, ...] of a group of seeds advanced by these
    chunks."""
    config = small_config(seeds=seeds, merge_capacity=0, **training)
    per_device = config.training.seeds_per_device
    groups = SeedGroups(make_trainer(config), terms_of(config), seeds, per_device, size)
    try:
        groups.start()
        parts = [groups.advance(count) for count in chunks]
        return flat(groups.stacked()), flat(
            jax.tree.map(lambda *leaves: np.concatenate(leaves, 1), *parts)
        )
    finally:
        groups.close()


def assert_same(one, other):
    assert one.keys() == other.keys()
    for name in one:
        np.testing.assert_array_equal(one[name], other[name], err_msg=name)


@pytest.fixture(
    scope="module",
    autouse=True,
    params=["quick", pytest.param("optimised", marks=pytest.mark.slow)],
)
def kind(request):
    """The bits must agree however the programs are compiled, as long as all are compiled alike."""
    with optimised() if request.param == "optimised" else nullcontext():
        yield


@pytest.fixture(scope="module")
def four(kind):
    return train(tuple(range(4)), (3, 3), 3)


def test_seeds_differ(four):
    states, records = four
    weights = states[".learner.policy.network.weights[0]"]
    assert len(np.unique(weights.reshape(4, -1), axis=0)) == 4
    assert (records["[0]['kl']"] > 0).any(axis=1).all()  # every seed has moved its policy


@pytest.mark.parametrize("size", [1, 3, 20])
def test_a_seed_alone_equals_itself_among_four_whatever_its_chunks(four, size):
    """Programs compiled for chunks of 1, 3 and 20 iterations, the last cut short."""
    found = train((3,), (min(size, ITERATIONS),) * max(ITERATIONS // size, 1), size)
    for one, among in zip(found, four, strict=True):
        assert_same(one, {name: leaf[3:4] for name, leaf in among.items()})


def test_restoring_in_the_middle_changes_nothing(four):
    config = small_config(seeds=(1, 3), merge_capacity=0)
    trainer = make_trainer(config)
    first, second = (WarmGroups(trainer, terms_of(config), (1, 3), 0, 3) for _ in range(2))
    try:
        first.start()
        first.advance(3)
        stacked = first.stacked()
        shapes = jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype), stacked)
        assert shapes == jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype), first.structure())
        second.restore(stacked)
        second.advance(3)
        found = flat(second.stacked())
    finally:
        first.close()
        second.close()
    assert_same(found, {name: leaf[[1, 3]] for name, leaf in four[0].items()})


VECTORISED = f"""
import json, sys
import jax, numpy as np
from runs.test_seeds import train
assert len(jax.devices()) == 2
states, records = train((0, 1, 2), ({VECTORISED_ITERATIONS},), 3, seeds_per_device=2)
np.savez(sys.argv[1], **states)
print(json.dumps({{name: leaf.tolist() for name, leaf in records.items() if name.startswith("[0]")}}))
"""


@pytest.mark.slow
def test_vectorised_seeds_on_two_devices_agree_with_single_ones(tmp_path):
    """Groups of two seeds and one, on a device each, as on accelerators: equal up to rounding for a
    while."""
    environment = os.environ | {
        "XLA_FLAGS": os.environ["XLA_FLAGS"] + " --xla_force_host_platform_device_count=2",
        "PYTHONPATH": os.pathsep.join([str(TESTS), str(TESTS.parent / "src")]),
    }
    command = [sys.executable, "-c", VECTORISED, str(tmp_path / "states.npz")]
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stderr
    single, records = train((0, 1, 2), (VECTORISED_ITERATIONS,), 3)
    together = np.load(tmp_path / "states.npz")
    for name in single:
        np.testing.assert_allclose(together[name], single[name], rtol=1e-2, atol=1e-3, err_msg=name)
    metrics = json.loads(done.stdout.splitlines()[-1])
    for name in ("[0]['multiplier']", "[0]['risk_bound']", "[0]['cost_mean']"):
        np.testing.assert_allclose(metrics[name], records[name], rtol=1e-4, err_msg=name)
