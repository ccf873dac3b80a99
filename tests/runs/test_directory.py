"""Run directories: never overwritten, correct after a kill, held by one process at a time."""

import json
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

from canary.errors import CanaryError
from canary.runs import directory
from canary.runs.directory import hold, is_held, update_manifest
from canary.runs.tables import COLUMNS, read_table, write_table

TRAINING = {"seeds": [0, 1], "environments": 5, "rollout_length": 20}


def new_run(root: Path, env: str = "IcyLake") -> Path:
    config = {"environment": {"name": env}, "algorithm": {"name": "canary"}, "training": TRAINING}
    return directory.create(root, config, 4000)


def test_every_run_gets_its_own_directory_with_a_usable_name(tmp_path: Path):
    runs = [new_run(tmp_path) for _ in range(3)]
    runs.append(new_run(tmp_path, "../my.module:Factory()"))
    assert len(set(runs)) == 4
    assert sorted(tmp_path.iterdir()) == sorted(runs)
    assert runs[-1].name.startswith("my.module-Factory-canary-")


def test_a_name_is_that_of_a_new_directory(tmp_path: Path):
    (tmp_path / "taken").mkdir()
    for name in ("taken", "latest", "a/b", "..", ""):
        with pytest.raises(CanaryError, match="another --name"):
            directory.check_name(tmp_path, name)
    directory.check_name(tmp_path, "new")


def test_only_updates_that_the_manifest_counts_are_read(tmp_path: Path):
    """A kill may come after the tables and before the checkpoint and the manifest."""
    run = new_run(tmp_path)
    for kind, columns in COLUMNS.items():
        assert read_table(run, kind).schema == pl.Schema(columns)
    rows = pl.DataFrame({"seed": [1, 1, 0, 0], "iteration": [0, 1, 0, 1], "steps": [100, 200] * 2})
    write_table(run, "metrics", rows)
    assert read_table(run, "metrics").is_empty()
    update_manifest(run, steps=100)
    assert read_table(run, "metrics").rows() == [(0, 0, 100), (1, 0, 100)]
    with pytest.raises(CanaryError, match=r"episodes\.parquet is missing"):
        read_table(run, "episodes")
    (run / "metrics.parquet").write_bytes((run / "metrics.parquet").read_bytes()[:-9])
    with pytest.raises(CanaryError, match=r"metrics\.parquet is damaged"):
        read_table(run, "metrics")


HOLD = """
import sys
from pathlib import Path
from canary.runs import directory
with directory.hold(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.readline()
"""


def test_one_process_at_a_time_holds_a_run(tmp_path: Path):
    run = new_run(tmp_path)
    assert directory.list_runs(tmp_path)[0]["status"] == "interrupted"
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    other = subprocess.Popen([sys.executable, "-c", HOLD, str(run)], **pipes)
    assert other.stdout is not None
    assert other.stdout.readline() == "held\n"
    assert directory.list_runs(tmp_path)[0]["status"] == "running"
    with pytest.raises(CanaryError, match="is being trained by another process"), hold(run):
        pass
    other.kill()
    other.communicate()
    assert not is_held(run)
    with hold(run):
        assert is_held(run)
    assert not is_held(run)


def test_list_shows_broken_directories_as_unreadable(tmp_path: Path):
    assert directory.list_runs(tmp_path / "none") == []
    good = new_run(tmp_path)
    update_manifest(good, status="finished")
    broken = {"a": "{", "b": json.dumps({"env": "x", "seeds": "many"}), "c": '{"process": 3}'}
    for name, text in broken.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "manifest.json").write_text(text)
    (tmp_path / "unrelated").mkdir()
    rows = directory.list_runs(tmp_path)
    assert {Path(row["path"]).name: row["status"] for row in rows} == {
        good.name: "finished",
        **dict.fromkeys(broken, "unreadable"),
    }
    assert rows[0]["path"] == str(good)


def test_runs_are_found_by_path_and_name_and_suggested(tmp_path: Path):
    with pytest.raises(CanaryError, match=r"start one with `canary train`"):
        directory.find_run("x", tmp_path)
    older = new_run(tmp_path)
    update_manifest(older, started="2020-01-01T00:00:00+00:00")
    newer = new_run(tmp_path, "PointGoal")
    assert directory.find_run(str(older), tmp_path / "elsewhere") == older
    assert directory.find_run(older.name, tmp_path) == older
    assert directory.find_run("latest", tmp_path) == newer
    with pytest.raises(CanaryError, match=f"did you mean {newer.name}"):
        directory.find_run("PointGaol-canary", tmp_path)
