"""Run directories: never overwritten or half-written, correct after a kill, listed even when broken."""

import dataclasses
import json
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from canary.errors import CanaryError
from canary.experiments import storage

HEADLINE = storage.Headline(env="IcyLake", algorithm="canary", seeds=2, total_steps=4000)


def new_run(root: Path, headline: storage.Headline = HEADLINE) -> Path:
    return storage.create(root, headline, {"limit": 5.5}, device="cpu", command=["canary", "train"])


def metrics(first: int, last: int) -> pl.DataFrame:
    rows = [(seed, k, 100 * k, seed + k / 10) for k in range(first, last) for seed in (0, 1)]
    return pl.DataFrame(rows, schema=["seed", "iteration", "steps", "loss"], orient="row")


def episodes(first: int, last: int) -> pl.DataFrame:
    rows = [
        (s, k, e, 1.0, 2.0 * k, 10 + e, True, True)
        for s in (0, 1)
        for k in range(first, last)
        for e in (0, 1)
    ]
    return pl.DataFrame(rows, schema=list(storage.COLUMNS["episodes"]), orient="row")


def append(run: Path, first: int, last: int) -> None:
    storage.append_part(run, "metrics", metrics(first, last), first, last)
    storage.append_part(run, "episodes", episodes(first, last), first, last)


def assert_holds(run: Path, last: int) -> None:
    """The run's tables are those of an uninterrupted run of `last` iterations."""
    expected = {"metrics": metrics(0, last).sort("seed", "iteration"), "episodes": episodes(0, last)}
    for kind in storage.COLUMNS:
        actual = storage.read(run, kind)
        if last == 0:
            assert actual.is_empty()
        else:
            assert_frame_equal(actual, expected[kind])


def test_create_writes_config_and_manifest(tmp_path: Path):
    run = new_run(tmp_path / "deep" / "runs")
    assert run.name.startswith("IcyLake-canary-20")
    assert storage.read_json(run / "config.json") == {"limit": 5.5}
    manifest = storage.read_json(run / "manifest.json")
    assert {"status": "running", "steps": 0, "seeds": 2, "device": "cpu"}.items() <= manifest.items()
    assert {"python", "jax", "jaxlib", "numpy"} <= manifest["versions"].keys()
    assert sorted(path.name for path in run.iterdir()) == sorted(
        ["checkpoints", "config.json", "episodes", "manifest.json", "metrics"]
    )


def test_runs_of_the_same_second_get_their_own_directories(tmp_path: Path):
    runs = [new_run(tmp_path) for _ in range(4)]
    assert len(set(runs)) == 4
    assert sorted(tmp_path.iterdir()) == sorted(runs)
    assert [path for path in runs if path.name.endswith("-2")]


def test_a_name_that_is_no_file_name_is_made_one(tmp_path: Path):
    run = new_run(tmp_path, dataclasses.replace(HEADLINE, env="../my.module:Factory()"))
    assert run.parent == tmp_path
    assert run.name.startswith("my.module-Factory-canary-")


def test_create_below_a_file_is_a_sentence(tmp_path: Path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(CanaryError, match=r"Cannot write .*Not a directory.*; choose a place"):
        new_run(tmp_path / "file" / "runs")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_no_room_leaves_nothing_behind(tmp_path: Path):
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(
        resource.RLIMIT_FSIZE, (16, hard)
    )  # a real failure of write(), in the middle of a file
    try:
        with pytest.raises(CanaryError, match=r"Cannot write .*File too large"):
            new_run(tmp_path / "deep" / "runs")
        with pytest.raises(CanaryError, match="Cannot write"):
            storage.write_json(tmp_path / "summary.json", {"a": "long enough to be cut in the middle"})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert list(tmp_path.iterdir()) == []


def test_an_interrupted_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    storage.write_json(tmp_path / "a.json", {"old": 1})
    monkeypatch.setattr(os, "replace", interrupt)
    with pytest.raises(KeyboardInterrupt):
        storage.write_json(tmp_path / "a.json", {"new": 2})
    assert storage.read_json(tmp_path / "a.json") == {"old": 1}
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]


@pytest.mark.parametrize("content", [b"{", b"", b"[1]", b"\xff\xfe", b"[" * 100_000])
def test_a_damaged_config_is_named(tmp_path: Path, content: bytes):
    (tmp_path / "config.json").write_bytes(content)
    with pytest.raises(CanaryError, match=r"config\.json is damaged .*; restore it"):
        storage.read_json(tmp_path / "config.json")
    with pytest.raises(CanaryError, match=r"other\.json is missing"):
        storage.read_json(tmp_path / "other.json")


def test_parts_are_read_in_order_and_survive_compaction(tmp_path: Path):
    run = new_run(tmp_path)
    assert storage.read(run, "episodes").columns == list(storage.COLUMNS["episodes"])
    for first, last in ((4, 6), (0, 4), (6, 13)):
        append(run, first, last)
    assert_holds(run, 13)
    storage.compact(run)
    assert_holds(run, 13)
    assert (run / "metrics.parquet").is_file()
    assert list((run / "metrics").iterdir()) == list((run / "episodes").iterdir()) == []
    append(run, 13, 15)  # a finished run that is given more steps
    assert_holds(run, 15)
    storage.compact(run)
    assert_holds(run, 15)


def test_a_kill_while_compacting_counts_nothing_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    run = new_run(tmp_path)
    append(run, 0, 3)
    append(run, 3, 5)
    second, unlink = run / "metrics" / "part-00000003-00000005.parquet", Path.unlink

    def kill_at_second(path: Path, missing_ok: bool = False) -> None:
        if path == second:
            raise KeyboardInterrupt
        unlink(path, missing_ok=missing_ok)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", kill_at_second)
        with pytest.raises(KeyboardInterrupt):
            storage.compact(run)
    assert (run / "metrics.parquet").exists()
    assert list((run / "metrics").iterdir()) == [second]
    assert_holds(run, 5)
    storage.compact(run)
    assert_holds(run, 5)


@pytest.mark.parametrize("resume_at", [0, 3, 4, 6, 9])
@pytest.mark.parametrize("is_compact", [False, True])
def test_resuming_replaces_what_came_after_the_checkpoint(tmp_path: Path, resume_at: int, is_compact: bool):
    run = new_run(tmp_path)
    for first, last in ((0, 3), (3, 6), (6, 9)):
        append(run, first, last)
    (run / "metrics" / ".part-00000009-00000012.parquet.tmp").write_bytes(b"half a part, from a kill")
    if is_compact:
        storage.compact(run)
    storage.discard_after(run, resume_at)
    assert_holds(run, resume_at)
    if resume_at < 9:
        append(run, resume_at, 9)
    append(run, 9, 11)
    assert_holds(run, 11)


def test_a_kill_between_renaming_and_cutting_a_part_is_harmless(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def kill(*_: object) -> None:
        raise KeyboardInterrupt

    run = new_run(tmp_path)
    append(run, 0, 6)
    with monkeypatch.context() as patch:
        patch.setattr(storage, "write_atomically", kill)
        with pytest.raises(KeyboardInterrupt):
            storage.discard_after(run, 4)
    storage.discard_after(run, 4)
    append(run, 4, 8)
    assert_holds(run, 8)


def test_a_damaged_part_is_named(tmp_path: Path):
    run = new_run(tmp_path)
    append(run, 0, 3)
    part = run / "metrics" / "part-00000000-00000003.parquet"
    part.write_bytes(part.read_bytes()[:40])
    with pytest.raises(CanaryError, match=r"part-00000000-00000003\.parquet is damaged"):
        storage.read(run, "metrics")


def test_wrong_parts_are_programming_errors(tmp_path: Path):
    run = new_run(tmp_path)
    with pytest.raises(ValueError, match="first < last"):
        storage.append_part(run, "metrics", metrics(0, 1), 3, 3)
    with pytest.raises(ValueError, match="need the columns"):
        storage.append_part(run, "episodes", metrics(0, 1), 0, 1)


def test_status_follows_the_process(tmp_path: Path):
    code = (
        "import sys, time; from pathlib import Path; from canary.experiments import storage as s;"
        "s.create(Path(sys.argv[1]), s.Headline('IcyLake', 'canary', 1, 10), {}, device='cpu', command=[]);"
        "print('ready', flush=True); time.sleep(60)"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=subprocess_environment()) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert [row.status for row in storage.list_runs(tmp_path)] == ["running"]
        process.send_signal(signal.SIGKILL)
        process.wait()
    (row,) = storage.list_runs(tmp_path)
    assert row.status == "interrupted"
    storage.update_manifest(Path(row.path), status="running", process=storage.process_identity())
    assert storage.list_runs(tmp_path)[0].status == "running"
    storage.update_manifest(Path(row.path), status="finished", steps=10)
    assert (storage.list_runs(tmp_path)[0].status, storage.list_runs(tmp_path)[0].steps) == ("finished", 10)


def test_a_reused_process_number_is_not_taken_for_the_run():
    process = storage.process_identity()
    assert storage.run_status({"status": "running", "process": process}) == "running"
    assert (
        storage.run_status({"status": "running", "process": process | {"start_time": "1"}}) == "interrupted"
    )


def test_list_shows_broken_directories_as_unreadable(tmp_path: Path):
    assert storage.list_runs(tmp_path / "none") == []
    good = new_run(tmp_path)
    broken = {"a": "{", "b": "[]", "c": json.dumps({"env": "x", "seeds": "many"}), "d": '{"process": 3}'}
    for name, manifest in broken.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text("{}")
        (tmp_path / name / "manifest.json").write_text(manifest)
    (tmp_path / "unrelated").mkdir()
    (tmp_path / "file.txt").write_text("")
    (tmp_path / ".IcyLake-canary-1").mkdir()
    rows = storage.list_runs(tmp_path)
    assert rows[0] == storage.RunRow(str(good), HEADLINE, 0, "running", rows[0].started)
    assert {Path(row.path).name: row.status for row in rows[1:]} == dict.fromkeys(broken, "unreadable")


def test_runs_are_found_by_path_and_name_and_suggested(tmp_path: Path):
    with pytest.raises(CanaryError, match=r"start one with `canary train`"):
        storage.find_run("x", tmp_path)
    older = new_run(tmp_path)
    storage.update_manifest(older, started="2020-01-01T00:00:00+00:00")
    newer = new_run(tmp_path, dataclasses.replace(HEADLINE, env="PointGoal"))
    assert storage.find_run(str(older), tmp_path / "elsewhere") == older
    assert storage.find_run(older.name, tmp_path) == older
    assert storage.find_run("latest", tmp_path) == newer
    with pytest.raises(CanaryError, match=f'did you mean "{newer.name}"'):
        storage.find_run("PointGaol-canary", tmp_path)
    with pytest.raises(CanaryError, match="is a directory but not a run"):
        storage.find_run(str(tmp_path), tmp_path)


def subprocess_environment() -> dict[str, str]:
    source = Path(storage.__file__).parents[2]
    return os.environ | {"PYTHONPATH": str(source)}


def test_listing_imports_neither_jax_nor_polars(tmp_path: Path):
    code = (
        "import sys; from pathlib import Path; from canary.experiments import storage, progress;"
        "storage.list_runs(Path('.'));"
        "sys.exit(', '.join({'jax', 'polars', 'scipy', 'numpy'} & sys.modules.keys()) or 0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=subprocess_environment(),
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert (done.stderr.strip(), done.returncode) == ("", 0)
