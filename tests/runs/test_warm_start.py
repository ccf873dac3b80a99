"""A warm start: training begins exactly with the policies of another run, and says so."""

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import polars as pl
import pytest
from benchmarks.warm_start import steps_to_reach

import canary
from canary.cli.main import main
from canary.config.config import make_config
from canary.errors import CanaryError
from canary.runs.policies import load_policies
from canary.runs.seeds import SeedGroups, make_terms
from canary.runs.warm_start import start_from_policy, start_from_run
from problems.faulty_environments import Walk
from problems.trees import same
from tiny_runs import SETTINGS

TINY = {"overrides": SETTINGS, "total_steps": 2000, "quiet": True, "final_check": False}


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    return canary.train(seeds=[3, 5], out=tmp_path_factory.mktemp("source"), **TINY)


def weights(run, seed):
    return load_policies(run.config, run.directory).of_seed(seed)


def test_training_begins_with_the_policies_of_the_other_run(source, tmp_path):
    # The first checkpoint of a warm start is the state that it begins with
    tight = canary.train(
        constraint={"limit": 2.5}, start=source, out=tmp_path, name="tight", **TINY
    )
    (tight.directory / "checkpoints" / "checkpoint-00000002.npz").unlink()
    (tight.directory / "checkpoints" / "checkpoint-00000001.npz").unlink(missing_ok=True)
    for seed in (3, 5):
        assert same(weights(tight, seed), weights(source, seed))
    began = {"run": str(source.directory), "step": 2000, "seeds": {"3": 3, "5": 5}, "critics": True}
    assert tight.summary()["start"] == began
    assert tight.config.training.fine_tuning


def test_a_warm_start_fine_tunes_unless_it_is_told_not_to(source, tmp_path):
    """The learning rate begins at half; a run from scratch begins at 0."""

    def progress(config):
        halves = (0, config.training.updates // 2, config.training.updates)
        terms = make_terms(config)
        return [float(replace(terms, iteration=jnp.int32(each)).progress) for each in halves]

    warm = make_config(total_steps=10_000, overrides={"training.fine_tuning": True})
    assert progress(warm) == [0.5, 0.75, 1.0]
    assert progress(make_config(total_steps=10_000)) == [0.0, 0.5, 1.0]
    settings = (*SETTINGS, "training.fine_tuning=false")
    run = canary.train(start=source, out=tmp_path, **TINY | {"overrides": settings})
    assert not run.config.training.fine_tuning


def test_one_policy_can_start_all_seeds(source):
    groups = SeedGroups(source.config)
    groups.start()
    fresh = groups.stacked()
    policy = source.policy(seed=5)
    one = start_from_run(source.directory, seed=5).begin(fresh, (3, 5))
    other = start_from_policy(policy.policy, policy.statistics, policy.sha256).begin(fresh, (3, 5))
    assert one[1]["seeds"] == {"3": 5, "5": 5}
    assert (one[1]["critics"], other[1]["critics"]) == (True, False)
    for found, _ in (one, other):
        twice = jax.tree.map(lambda leaf: np.stack([leaf, leaf]), policy.policy)
        assert same(found.learner.policy, twice)
        np.testing.assert_array_equal(found.lanes.spent, fresh.lanes.spent)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"seeds": 1}, "has no seed 0, only 3, 5"),
        ({"overrides": (*SETTINGS, "algo.hidden=[8,8]")}, "must be"),
        (
            {"env": Walk(), "overrides": SETTINGS[1:], "constraint": canary.Chance(9.0, 0.2)},
            "sizes",
        ),
        ({"start": 3}, "start must be a Run"),
    ],
)
def test_what_does_not_fit_is_a_sentence_and_writes_nothing(source, arguments, words, tmp_path):
    with pytest.raises(CanaryError, match=words):
        canary.train(**{**TINY, "start": source, **arguments}, out=tmp_path)
    assert not list(tmp_path.iterdir())


def test_the_command_line_takes_a_run_and_a_seed_of_it(source, tmp_path, capsys):
    flags = [part for setting in SETTINGS for part in ("--set", setting)]
    flags += ["--total-steps", "1000", "--quiet", "--no-final-check", "--out", str(tmp_path)]
    assert (
        main(["train", "--from", str(source.directory), "--seed", "5", "--seeds", "2", *flags]) == 0
    )
    assert canary.load("latest", out=tmp_path).summary()["start"]["seeds"] == {"0": 5, "1": 5}
    assert main(["train", "--seed", "5", *flags]) == 2
    assert "--from" in capsys.readouterr().err


def test_steps_to_reach_a_limit_by_hand():
    """Row i ends in update i: the first 200 rows that are rich and within the limit end in 300."""
    at = np.arange(400)
    cost, earned = np.where(at < 103, 9.0, 1.0), np.where(at < 101, 0.0, 5.0)
    rows = {"valid": at >= 0, "iteration": at, "cost": cost, "return": earned}
    reach = partial(steps_to_reach, limit=5.0, epsilon=0.01, batch=10)
    assert reach(pl.DataFrame(rows), reward=4.99) == 3010
    assert reach(pl.DataFrame(rows), reward=5.01) is None
    assert reach(pl.DataFrame(rows).head(199), reward=0.0) is None
