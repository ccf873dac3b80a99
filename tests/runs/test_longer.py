"""One run that is stopped, loses its newest checkpoint, is resumed and trained longer: every number
is that of a run that was left alone."""

import io
import shutil
from contextlib import redirect_stderr
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

from attacks.warm import warm
from canary.api import Run
from canary.config.config import make_config
from canary.constraints import Chance
from canary.errors import CanaryError
from canary.reporting.summary import summarise_run
from canary.runs import runner
from canary.runs.checkpoint import checkpoints
from canary.runs.directory import stored_manifest
from canary.runs.files import read_json, write_json
from canary.runs.policies import load_policies
from canary.runs.runner import new_run, train_run
from canary.runs.tables import read_table
from canary.runs.warm_start import start_from_run
from problems.faulty_environments import Walk
from tiny_runs import small_config

UPDATES, BATCH = 6, 200


def config():
    """A checkpoint after every update."""
    return small_config(
        seeds=(0,), updates=UPDATES, chunk=1, checkpoint_seconds=0, keep_checkpoints=3, merge_capacity=0
    )  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def programs():
    """Compiled once for all the runs of this file, which are of one shape."""
    with warm():
        yield


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = new_run(config(), tmp_path_factory.mktemp("whole"))
    train_run(run, config(), quiet=True)
    return run


@pytest.fixture(scope="module")
def longer(tmp_path_factory: pytest.TempPathFactory) -> dict:
    """Stopped after three updates, its newest checkpoint cut short, resumed, failed in its callback
    after five, and then trained to nine."""
    out = tmp_path_factory.mktemp("longer")
    place = new_run(config(), out, name="mine")
    train_run(place, config(), callback=lambda update: update.number < 3, quiet=True)
    stopped = stored_manifest(place)
    newest = checkpoints(place)[3]
    newest.write_bytes(newest.read_bytes()[:1000])

    def fail(update):
        if update.number == 5:
            raise ZeroDivisionError

    run = Run(place, config())
    said = io.StringIO()
    with pytest.raises(ZeroDivisionError), redirect_stderr(said):
        run.resume(callback=fail)
    failed = stored_manifest(place)
    before = read_table(place, "metrics")
    run = run.resume(total_steps=1800, quiet=True)
    return {
        "stopped": stopped,
        "failed": failed,
        "before": before,
        "run": run,
        "said": said.getvalue(),
    }


def test_a_whole_run_is_complete(whole: Path):
    metrics, episodes = read_table(whole, "metrics"), read_table(whole, "episodes")
    assert metrics["iteration"].to_list() == list(range(UPDATES))
    # Every step belongs to an episode that ended or to the unfinished one of each environment.
    assert UPDATES * BATCH - 4 * 20 < episodes["length"].sum() <= UPDATES * BATCH
    assert (episodes.filter(~pl.col("terminated") & pl.col("valid"))["length"] == 20).all()
    assert (episodes.filter("terminated")["return"] == 1).all()
    manifest = stored_manifest(whole)
    assert (manifest["status"], manifest["steps"]) == ("finished", UPDATES * BATCH)


def test_a_callback_stops_after_exactly_its_update(longer: dict):
    assert (longer["stopped"]["status"], longer["stopped"]["steps"]) == ("stopped", 3 * BATCH)
    assert (longer["failed"]["status"], longer["failed"]["steps"]) == ("failed", 5 * BATCH)
    assert longer["run"].directory.name == "mine"


def test_a_damaged_checkpoint_is_named_and_the_one_before_it_used(longer: dict):
    text = "".join(longer["said"].split())  # lines are wrapped to the width of the console
    assert "checkpoint-00000003.npzisdamaged" in text
    assert "Usingkept-00000002.npzinstead." in text


def test_stops_change_no_number(longer: dict, whole: Path):
    expected = read_table(whole, "metrics").filter(pl.col("iteration") < 5)
    assert_frame_equal(longer["before"], expected, check_exact=True)


def test_a_longer_plan_takes_the_schedules_back(longer: dict):
    run = longer["run"]
    assert run.config.training.total_steps == 1800
    summary = summarise_run(run.directory)
    assert (summary["status"], summary["planned_steps"], summary["total_steps"]) == (
        "finished",
        1800,
        1800,
    )
    assert run.metrics["steps"].to_list() == [BATCH * (update + 1) for update in range(9)]
    policies = load_policies(run.config, run.directory)
    assert (policies.iteration, np.asarray(policies.states.terms.updates).tolist()) == (9, [9])
    for steps, words in ((1200, "at least 2,000"), (1810, "at least 2,000"), (0, "total_steps")):
        with pytest.raises(CanaryError, match=words):
            run.resume(total_steps=steps, quiet=True)


def test_the_policy_at_a_step_can_be_loaded(longer: dict, whole: Path):
    run = longer["run"]
    # Thirds of the first plan, then of the longer one, and the two newest
    assert run.stored_steps == [400, 800, 1200, 1600, 1800]
    early, late = run.policy(0, step=400), run.policy(0)
    assert early.sha256 == Run(whole, config()).policy(0, step=400).sha256 != late.sha256
    with pytest.raises(CanaryError, match="no state at step 300; it has those at 400"):
        run.policy(0, step=300)
    assert repr(run).endswith("canary on IcyLake, P(cost > 5.5) <= 0.02, 1 seed>")


def test_a_resumed_run_keeps_the_deviation_that_was_chosen(tmp_path, monkeypatch):
    """And the weight of the entropy bonus, which is in proportion to it."""
    monkeypatch.setattr(runner, "initial_std", lambda config: 0.25)
    small = {"hidden": [4], "epochs": 1, "entropy": 0.1}
    sizes = {"environments": 3, "rollout_length": 10, "seeds": (0,), "total_steps": 90}
    overrides = {f"algo.{name}": value for name, value in small.items()}
    config = make_config(Walk(), "ppo", Chance(9.0, 0.2), overrides=overrides, **sizes)
    left_alone, stopped = new_run(config, tmp_path), new_run(config, tmp_path)
    train_run(left_alone, config, quiet=True)
    train_run(stopped, config, callback=lambda update: False, quiet=True)
    train_run(stopped, config, quiet=True)
    tables = (read_table(run, "metrics") for run in (left_alone, stopped))
    assert_frame_equal(*tables, check_exact=True)
    warm = new_run(config, tmp_path, start=start_from_run(stopped))
    assert read_json(warm / "manifest.json")["initial_std"] == 0.25


def test_an_edited_manifest_is_refused(whole, tmp_path):
    run = shutil.copytree(whole, tmp_path / "copy")
    manifest = read_json(run / "manifest.json")
    manifest["config"]["constraint"]["limit"] = 50.0
    write_json(run / "manifest.json", manifest)
    with pytest.raises(CanaryError, match="does not match its digest"):
        train_run(run, config())
