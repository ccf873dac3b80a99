"""A run that is killed anywhere and resumed equals one that was left alone."""

import io
import shutil
from contextlib import redirect_stderr
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

from attacks.death import Mortal
from attacks.warm import warm
from canary.config.config import config_from_dict
from canary.errors import CanaryError
from canary.reporting.summary import summarise_run
from canary.runs import checkpoint
from canary.runs.checkpoint import load_states
from canary.runs.files import read_json, write_json
from canary.runs.manifest import read_config, read_manifest, update_manifest
from canary.runs.runner import resume_run, start_run
from problems.small_runs import SEEDS, UPDATES, run_config


def arrays(run: Path) -> dict[str, np.ndarray]:
    with np.load(checkpoint.checkpoints(run / "checkpoints")[0], allow_pickle=False) as archive:
        return {name: archive[name] for name in archive.files}


@pytest.fixture(scope="module", autouse=True)
def programs():
    """Compiled once for all the runs of this file, which are of one shape."""
    with warm("canary"):
        yield


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The uninterrupted run."""
    return start_run(run_config(), tmp_path_factory.mktemp("whole"), quiet=True)


@pytest.fixture(scope="module")
def survivor(tmp_path_factory):
    """A run killed, its newest checkpoint cut short, and resumed to the end; what the resume said;
    and the paths of that checkpoint and the one before it."""
    out = tmp_path_factory.mktemp("killed")
    with Mortal(40):
        start_run(run_config(), out, quiet=True)
    (run,) = (path for path in out.iterdir() if path.name[0] != ".")
    assert read_manifest(run)["status"] == "interrupted"
    newest, previous = checkpoint.checkpoints(run / "checkpoints")[:2]
    data = newest.read_bytes()
    newest.write_bytes(data[: len(data) * 2 // 3])
    said = io.StringIO()
    with redirect_stderr(said):
        resume_run(run)
    return run, said.getvalue(), (newest, previous)


def test_whole_run_is_complete(whole):
    metrics, episodes = (
        pl.read_parquet(whole / "metrics.parquet"),
        pl.read_parquet(whole / "episodes.parquet"),
    )
    assert metrics.height == len(SEEDS) * UPDATES
    assert metrics["seed"].to_list() == [seed for seed in SEEDS for _ in range(UPDATES)]
    assert metrics["iteration"].to_list() == list(range(UPDATES)) * len(SEEDS)
    assert metrics["steps"].max() == UPDATES * 200
    # Every step belongs to an episode that ended or to one of the last, unfinished ones of each
    # environment.
    lengths = episodes.group_by("seed").agg(pl.col("length").sum())["length"]
    assert ((lengths > UPDATES * 200 - 4 * 20) & (lengths <= UPDATES * 200)).all()
    assert (episodes.filter(~pl.col("terminated") & pl.col("valid"))["length"] == 20).all()
    assert (episodes.filter("terminated")["return"] == 1).all()
    manifest = read_json(whole / "manifest.json")
    assert (manifest["status"], manifest["steps"]) == ("finished", UPDATES * 200)


def test_killed_and_resumed_run_equals_the_whole_one(whole, survivor):
    run, _, _ = survivor
    for table in ("metrics.parquet", "episodes.parquet"):
        assert_frame_equal(
            pl.read_parquet(run / table), pl.read_parquet(whole / table), check_exact=True
        )
    found, expected = arrays(run), arrays(whole)
    assert found.keys() == expected.keys()
    for name in expected:
        np.testing.assert_array_equal(found[name], expected[name], err_msg=name)
    assert read_json(run / "manifest.json")["status"] == "finished"


def test_truncated_checkpoint_is_named_and_the_one_before_it_used(survivor):
    _, errors, (newest, previous) = survivor
    text = "".join(errors.split())  # lines are wrapped to the width of the console
    assert f"{newest.name}isdamaged" in text
    assert f"Using{previous.name}instead." in text
    assert "Traceback" not in errors


def test_nothing_half_written_is_left(whole, survivor):
    for run in (whole, survivor[0]):
        names = {path.relative_to(run).as_posix() for path in run.rglob("*")}
        checkpoints = {name for name in names if name.startswith("checkpoints/")}
        assert len(checkpoints) == 2
        assert names - checkpoints == {
            "config.json", "manifest.json", "metrics", "episodes", "checkpoints", "metrics.parquet",
            "episodes.parquet",
        }  # fmt: skip


def test_an_edited_configuration_is_refused_by_every_reader(whole, tmp_path):
    run = shutil.copytree(whole, tmp_path / "copy")
    config = read_json(run / "config.json")
    config["constraint"]["limit"] = 50.0
    write_json(run / "config.json", config)
    for read in (read_config, resume_run, summarise_run):
        with pytest.raises(CanaryError, match=r"constraint.limit is 50.0 and was 5.5"):
            read(run)
    # Whoever changes the manifest's copy too, and its digest, is stopped by the checkpoint.
    update_manifest(run, config=config)
    with pytest.raises(CanaryError, match=r"constraint.limit is 50.0 and was 5.5"):
        load_states(config_from_dict(read_config(run)), run)


def test_a_checkpoint_of_another_update_than_its_name_says_is_skipped(whole, tmp_path):
    run = shutil.copytree(whole, tmp_path / "copy")
    newest = checkpoint.checkpoints(run / "checkpoints")[0]
    newest.rename(checkpoint.checkpoint_path(newest.parent, UPDATES + 1))
    _, found, notes = load_states(config_from_dict(read_config(run)), run)
    assert (found, len(notes)) == (UPDATES - 1, 1)
