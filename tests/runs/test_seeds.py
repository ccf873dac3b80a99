"""A seed is the same run whatever runs beside it and however its iterations are grouped."""

import os
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import jax
import numpy as np
import pytest

from attacks.warm import warm
from canary.runs import seeds as groups_module
from problems.compilation import optimised
from problems.trees import assert_same, plain
from tiny_runs import small_config

TESTS = Path(__file__).parents[1]
ITERATIONS = 6
VECTORISED_ITERATIONS = 3


def train(seeds, chunks, size, **training):
    """Final states and all records [seed, iteration, ...] of seeds advanced by these chunks."""
    groups = groups_module.SeedGroups(
        small_config(seeds=seeds, chunk=size, merge_capacity=0, **training)
    )
    groups.start()
    parts = [groups.advance(count) for count in chunks]
    records = jax.tree.map(lambda *leaves: np.concatenate(leaves, 1), *parts)
    return plain(groups.stacked()), records


@pytest.fixture(
    scope="module",
    autouse=True,
    params=["quick", pytest.param("optimised", marks=pytest.mark.slow)],
)
def kind(request):
    """The bits must agree however the programs are compiled, as long as all are compiled alike."""
    with optimised() if request.param == "optimised" else nullcontext():
        yield request.param


@pytest.fixture(scope="module")
def four(kind):
    return train(tuple(range(4)), (3, 3), 3)


def test_seeds_differ(four):
    states, records = four
    weights = states.learner.policy.network.weights[0]
    assert len(np.unique(weights.reshape(4, -1), axis=0)) == 4
    assert (records[0]["kl"] > 0).any(axis=1).all()  # every seed has moved its policy


@pytest.mark.parametrize("size", [1, 3, 20])
def test_a_seed_alone_equals_itself_among_four_whatever_its_chunks(four, size):
    """Programs compiled for chunks of 1, 3 and 20 iterations, the last cut short."""
    found = train((3,), (min(size, ITERATIONS),) * max(ITERATIONS // size, 1), size)
    assert_same(found, jax.tree.map(lambda leaf: leaf[3:4], four))


def test_restoring_in_the_middle_changes_nothing(kind, four):
    config = small_config(seeds=(1, 3), chunk=3, merge_capacity=0)
    with warm(kind):
        first, second = groups_module.SeedGroups(config), groups_module.SeedGroups(config)
    first.start()
    first.advance(3)
    stacked = first.stacked()
    shapes = jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype), stacked)
    assert shapes == jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype), first.structure())
    second.restore(stacked)
    second.advance(3)
    assert_same(plain(second.stacked()), jax.tree.map(lambda leaf: leaf[[1, 3]], four[0]))


VECTORISED = f"""
import sys
import jax, numpy as np
from runs.test_seeds import train
assert len(jax.devices()) == 2
states, (metrics, _) = train((0, 1, 2), ({VECTORISED_ITERATIONS},), 3, seeds_per_device=2)
np.savez(sys.argv[1], *jax.tree.leaves(states), **metrics)
"""


@pytest.mark.slow
def test_vectorised_seeds_on_two_devices_agree_with_single_ones(tmp_path):
    """Groups of two seeds and one, on a device each, as on accelerators: equal up to rounding."""
    environment = os.environ | {
        "XLA_FLAGS": os.environ["XLA_FLAGS"] + " --xla_force_host_platform_device_count=2",
        "PYTHONPATH": os.pathsep.join([str(TESTS), str(TESTS.parent / "src")]),
    }
    command = [sys.executable, "-c", VECTORISED, str(tmp_path / "states.npz")]
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stderr
    single, (metrics, _) = train((0, 1, 2), (VECTORISED_ITERATIONS,), 3)
    together = np.load(tmp_path / "states.npz")
    for index, leaf in enumerate(jax.tree.leaves(single)):
        np.testing.assert_allclose(together[f"arr_{index}"], leaf, rtol=1e-2, atol=1e-3)
    for name in ("multiplier", "risk_bound", "cost_mean"):
        np.testing.assert_allclose(together[name], metrics[name], rtol=1e-4, err_msg=name)
