"""Training as a pure function, and methods of the user's own."""

from dataclasses import dataclass
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import polars as pl
import pytest
from examples.own_constraint import Excess

import canary
from canary import CanaryError
from canary.algorithms.canary import CanaryConfig
from canary.config.config import make_config
from canary.config.run_config import config_to_dict
from canary.runs import directory
from canary.training import seed_key
from problems.trees import assert_close

LAKE = (
    "env.horizon=20", "training.environments=4", "training.rollout_length=30", "algo.hidden=[8]",
    "algo.epochs=1",
)  # fmt: skip
STEPS = 480
HOW = {"seeds": 2, "total_steps": STEPS, "overrides": LAKE, "quiet": True, "final_check": False}


@pytest.fixture(scope="module")
def trained():
    """Limits x seeds in one program."""
    train = canary.make_train("IcyLake", total_steps=STEPS, overrides=LAKE)
    keys = jax.vmap(seed_key)(jnp.arange(2))
    over_seeds = jax.vmap(train, (0, None, None))
    program = jax.jit(jax.vmap(over_seeds, (None, 0, 0)))
    return train, program(keys, jnp.array([5.5, 2.0, 5.5]), jnp.array([0.02, 0.02, 0.3]))


def test_the_pure_function_trains_what_train_does(trained, tmp_path: Path):
    _, (state, metrics) = trained
    run = canary.train("IcyLake", out=tmp_path, **HOW)
    for seed in (0, 1):
        found = jax.tree.map(lambda leaf, seed=seed: leaf[0, seed], state.learner.policy)
        assert_close(found, run.policy(seed).policy, rtol=1e-4, atol=1e-6)
        rows = run.metrics.filter(pl.col("seed") == seed)
        np.testing.assert_allclose(metrics["kl"][0, seed], rows["kl"], rtol=1e-3, atol=1e-6)
    ended = run.episodes.filter(pl.col("valid") & (pl.col("seed") == 0))
    assert metrics["episodes"][0, 0].sum() == ended.height
    counts, means = metrics["episodes"][0, 0], metrics["episode_return"][0, 0]
    assert np.nansum(counts * means) == pytest.approx(ended["return"].sum(), rel=1e-5)
    assert not metrics["fault"].any()


def test_limits_and_epsilons_are_values(trained):
    train, (state, metrics) = trained
    alone, _ = jax.jit(train)(seed_key(1), limit=2.0, epsilon=0.02)
    found = jax.tree.map(lambda leaf: leaf[1, 1], state.learner.policy)
    assert_close(found, alone.learner.policy, rtol=1e-4, atol=1e-6)
    assert (metrics["episode_violation"][1, :, 0] >= metrics["episode_violation"][0, :, 0]).all()
    levels = metrics["constraint_level"][:, 0, -1]
    assert len({float(level) for level in levels}) == 3


def test_a_method_of_ones_own_trains_and_is_opened_again(tmp_path: Path):
    run = canary.train("IcyLake", algorithm=Excess, out=tmp_path, **HOW)
    # Windows reach back over all batches of so short a run.
    costs = run.episodes.filter(pl.col("valid"))["cost"].to_numpy()
    last = run.metrics.filter(pl.col("iteration") == run.metrics["iteration"].max())
    assert 0 <= last["mean_excess"].min() <= last["mean_excess"].max()
    assert last["mean_excess"].max() <= np.maximum(costs / 5.5 - 1, 0).max()
    opened, rows = canary.load(run.directory), run.metrics.height
    assert opened.config == run.config
    longer = opened.resume(total_steps=2 * STEPS, quiet=True, final_check=False)
    assert longer.metrics.height == 2 * rows


def test_a_method_of_ones_own_is_imported_only_if_it_is_trusted(tmp_path: Path):
    config = make_config("IcyLake", Excess)
    place = directory.create(tmp_path, config_to_dict(config), 1000)
    with pytest.raises(CanaryError, match=r"examples\.own_constraint:Excess"):
        canary.load(place)
    assert canary.load(place, trust=True).config == config
    assert canary.load(place).config == config  # asked once


@dataclass(frozen=True, kw_only=True)
class Forgetful(Excess):
    def estimate(self, batch, terms):
        return super().estimate(batch, terms).no_such_thing


@dataclass(frozen=True, kw_only=True)
class Wide(CanaryConfig):
    def make(self, task):
        algorithm = super().make(task)

        def update(*given):
            learner, metrics = algorithm.update(*given)
            return learner, metrics | {"wide": jnp.zeros(3)}

        return type(algorithm)(algorithm.init, update)


@pytest.mark.parametrize(
    ("method", "words"),
    [
        (Forgetful, "An update of Forgetful failed.*no_such_thing"),
        (Wide, r"'wide' of Wide.*\(3,\)"),
    ],
)
def test_mistakes_of_a_method_are_found_before_training(method, words, tmp_path: Path):
    with pytest.raises(CanaryError, match=words):
        canary.train("IcyLake", algorithm=method, out=tmp_path, **HOW)
    assert not list(tmp_path.iterdir())
