"""Run directories: never overwritten or half-written, correct after a kill, listed even when
broken."""

import contextlib
import dataclasses
import json
import os
import resource
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from canary.errors import CanaryError
from canary.runs import directory, lock, manifest, tables

HEADLINE = directory.Headline(env="IcyLake", algorithm="canary", seeds=2, total_steps=4000)


def new_run(root: Path, headline: directory.Headline = HEADLINE) -> Path:
    return directory.create(
        root, headline, {"limit": 5.5}, device="cpu", command=["canary", "train"]
    )


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
    return pl.DataFrame(rows, schema=list(directory.COLUMNS["episodes"]), orient="row")


def append(run: Path, first: int, last: int) -> None:
    directory.append_parts(run, {"metrics": metrics(first, last)}, first, last)
    directory.append_parts(run, {"episodes": episodes(first, last)}, first, last)


def assert_holds(run: Path, last: int) -> None:
    """The run's tables are those of an uninterrupted run of `last` iterations."""
    expected = {
        "metrics": metrics(0, last).sort("seed", "iteration"),
        "episodes": episodes(0, last),
    }
    for kind in directory.COLUMNS:
        actual = directory.read(run, kind)
        if last == 0:
            assert actual.is_empty()
        else:
            assert_frame_equal(actual, expected[kind])


def test_create_writes_config_and_manifest(tmp_path: Path):
    run = new_run(tmp_path / "deep" / "runs")
    assert run.name.startswith("IcyLake-canary-20")
    assert directory.read_json(run / "config.json") == {"limit": 5.5}
    manifest = directory.read_json(run / "manifest.json")
    assert {
        "status": "running",
        "steps": 0,
        "seeds": 2,
        "device": "cpu",
    }.items() <= manifest.items()
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
    # A real failure of write(), in the middle of a file
    resource.setrlimit(resource.RLIMIT_FSIZE, (16, hard))
    try:
        with pytest.raises(CanaryError, match=r"Cannot write .*File too large"):
            new_run(tmp_path / "deep" / "runs")
        with pytest.raises(CanaryError, match="Cannot write"):
            directory.write_json(
                tmp_path / "summary.json", {"a": "long enough to be cut in the middle"}
            )
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert list(tmp_path.iterdir()) == []


def test_an_interrupted_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    directory.write_json(tmp_path / "a.json", {"old": 1})
    monkeypatch.setattr(os, "replace", interrupt)
    with pytest.raises(KeyboardInterrupt):
        directory.write_json(tmp_path / "a.json", {"new": 2})
    assert directory.read_json(tmp_path / "a.json") == {"old": 1}
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]


@pytest.mark.parametrize("content", [b"{", b"", b"[1]", b"\xff\xfe", b"[" * 100_000])
def test_a_damaged_config_is_named(tmp_path: Path, content: bytes):
    (tmp_path / "config.json").write_bytes(content)
    with pytest.raises(CanaryError, match=r"config\.json is damaged .*; restore it"):
        directory.read_json(tmp_path / "config.json")
    with pytest.raises(CanaryError, match=r"other\.json is missing"):
        directory.read_json(tmp_path / "other.json")


def test_parts_are_read_in_order_and_survive_compaction(tmp_path: Path):
    run = new_run(tmp_path)
    assert directory.read(run, "episodes").columns == list(directory.COLUMNS["episodes"])
    for first, last in ((4, 6), (0, 4), (6, 13)):
        append(run, first, last)
    assert_holds(run, 13)
    directory.compact(run)
    assert_holds(run, 13)
    assert (run / "metrics.parquet").is_file()
    assert list((run / "metrics").iterdir()) == list((run / "episodes").iterdir()) == []
    append(run, 13, 15)  # a finished run that is given more steps
    assert_holds(run, 15)
    directory.compact(run)
    assert_holds(run, 15)


class Killed(BaseException):
    """Stands for SIGKILL at a certain write."""


def kill_at(patch: pytest.MonkeyPatch, write: int) -> None:
    """Let `write` writes and removals happen, and none after that."""
    left = [write]

    def counted(function):
        def call(*arguments, **keywords):
            if left[0] == 0:
                raise Killed
            left[0] -= 1
            return function(*arguments, **keywords)

        return call

    patch.setattr(tables, "write_atomically", counted(tables.write_atomically))
    patch.setattr(manifest, "write_json", counted(manifest.write_json))
    patch.setattr(Path, "unlink", counted(Path.unlink))


@pytest.mark.parametrize("write", range(8))
def test_a_kill_at_any_write_of_compacting_loses_and_doubles_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: int
):
    run = new_run(tmp_path)
    append(run, 0, 3)
    append(run, 3, 5)
    with monkeypatch.context() as patch:
        kill_at(patch, write)
        with contextlib.suppress(Killed):
            directory.compact(run)
    assert_holds(run, 5)
    directory.discard_after(run, 5)  # what the next process does first
    directory.compact(run)
    assert_holds(run, 5)
    assert list((run / "metrics").iterdir()) == list((run / "episodes").iterdir()) == []


@pytest.mark.parametrize("write", range(6))
@pytest.mark.parametrize("is_compact", [False, True])
def test_a_kill_at_any_write_of_going_back_is_harmless(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: int, is_compact: bool
):
    run = new_run(tmp_path)
    append(run, 0, 6)
    append(run, 6, 7)
    if is_compact:
        directory.compact(run)
    with monkeypatch.context() as patch:
        kill_at(patch, write)
        with contextlib.suppress(Killed):
            directory.discard_after(run, 4)
    directory.discard_after(run, 4)
    append(run, 4, 8)
    assert_holds(run, 8)
    assert len(list((run / "metrics").iterdir())) == 2


@pytest.mark.parametrize("write", range(4))
def test_a_kill_at_any_write_of_a_part_leaves_what_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: int
):
    run = new_run(tmp_path)
    append(run, 0, 3)
    frames = {"metrics": metrics(3, 5), "episodes": episodes(3, 5)}
    with monkeypatch.context() as patch:
        kill_at(patch, write)
        with contextlib.suppress(Killed):
            directory.append_parts(run, frames, 3, 5)
    assert_holds(run, 5 if write == 3 else 3)
    directory.discard_after(run, 3)
    assert_holds(run, 3)
    assert len(list((run / "episodes").iterdir())) == 1


@pytest.mark.parametrize("resume_at", [0, 3, 4, 6, 9])
@pytest.mark.parametrize("is_compact", [False, True])
def test_resuming_replaces_what_came_after_the_checkpoint(
    tmp_path: Path, resume_at: int, is_compact: bool
):
    run = new_run(tmp_path)
    for first, last in ((0, 3), (3, 6), (6, 9)):
        append(run, first, last)
    (run / "metrics" / "part-00000009-00000012.parquet").write_bytes(b"half a part, from a kill")
    if is_compact:
        directory.compact(run)
    directory.discard_after(run, resume_at)
    assert_holds(run, resume_at)
    if resume_at < 9:
        append(run, resume_at, 9)
    append(run, 9, 11)
    assert_holds(run, 11)


def test_a_damaged_part_is_named(tmp_path: Path):
    run = new_run(tmp_path)
    append(run, 0, 3)
    part = run / "metrics" / "part-00000000-00000003.parquet"
    data = part.read_bytes()
    part.write_bytes(data[:40])
    with pytest.raises(CanaryError, match=r"part-00000000-00000003\.parquet is damaged"):
        directory.read(run, "metrics")
    part.unlink()
    with pytest.raises(CanaryError, match=r"part-00000000-00000003\.parquet is missing"):
        directory.read(run, "metrics")


def test_no_flipped_byte_of_a_table_changes_the_data(tmp_path: Path):
    run = new_run(tmp_path)
    append(run, 0, 3)
    directory.compact(run)
    path = run / "episodes.parquet"
    data = path.read_bytes()
    for place in range(len(data)):
        path.write_bytes(data[:place] + bytes([data[place] ^ (1 << place % 8)]) + data[place + 1 :])
        with pytest.raises(CanaryError, match="does not match its digest"):
            directory.read(run, "episodes")


def test_no_flipped_byte_of_manifest_or_configuration_passes(tmp_path: Path):
    run = new_run(tmp_path)
    append(run, 0, 3)
    for name in ("manifest.json", "config.json"):
        data, passed = (run / name).read_bytes(), 0
        before = directory.read_config(run), manifest.stored_manifest(run)
        for place in range(len(data)):
            (run / name).write_bytes(
                data[:place] + bytes([data[place] ^ (1 << place % 7)]) + data[place + 1 :]
            )
            with contextlib.suppress(CanaryError):
                assert (directory.read_config(run), manifest.stored_manifest(run)) == before
                passed += 1  # a space that became a tab, or a letter of the digest's own name
        (run / name).write_bytes(data)
        assert passed < len(data) / 2


def test_an_edited_configuration_is_refused_by_the_name_of_the_field(tmp_path: Path):
    run = new_run(tmp_path)
    directory.write_json(run / "config.json", {"limit": 50})
    with pytest.raises(
        CanaryError, match=r"was changed after the run began: limit is 50 and was 5.5"
    ):
        directory.read_config(run)
    directory.write_json(run / "config.json", {"limit": 5.5, "slip": 0.1})
    with pytest.raises(CanaryError, match="slip is new"):
        directory.read_config(run)


def test_a_table_without_a_column_is_refused_even_with_its_digest(tmp_path: Path):
    run = new_run(tmp_path)
    append(run, 0, 3)
    name = "episodes/part-00000000-00000003.parquet"
    digest = tables._write(run, name, episodes(0, 3).drop("valid"))
    directory.update_manifest(run, tables=manifest.stored_manifest(run)["tables"] | {name: digest})
    with pytest.raises(CanaryError, match="no column 'valid'"):
        directory.read(run, "episodes")


def test_runs_of_older_versions_are_read_and_sealed(tmp_path: Path):
    run = new_run(tmp_path)
    append(run, 0, 3)
    record = manifest.stored_manifest(run)
    old = {name: value for name, value in record.items() if name not in ("config", "tables")}
    directory.write_json(run / "manifest.json", old)
    assert_holds(run, 3)
    tables.adopt(run, {"limit": 5.5})
    assert manifest.stored_manifest(run) == record
    for half in (old | {"config": {}}, old | {"tables": {}}, record):
        directory.write_json(run / "manifest.json", half)
        with pytest.raises(CanaryError, match="does not match its digest"):
            manifest.stored_manifest(run)


def test_wrong_parts_are_programming_errors(tmp_path: Path):
    run = new_run(tmp_path)
    with pytest.raises(ValueError, match="first < last"):
        directory.append_parts(run, {"metrics": metrics(0, 1)}, 3, 3)
    with pytest.raises(ValueError, match="need the columns"):
        directory.append_parts(run, {"episodes": metrics(0, 1)}, 0, 1)


def test_status_follows_the_process(tmp_path: Path):
    code = (
        "import sys, time; from pathlib import Path; from canary.runs import directory as s;"
        "from canary.runs import lock;"
        "run = s.create(Path(sys.argv[1]), s.Headline('IcyLake', 'canary', 1, 10), {}, "
        "device='cpu', command=[]);"
        "held = lock.acquire(run); print('ready', flush=True); time.sleep(60)"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=subprocess_environment()) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert [row.status for row in directory.list_runs(tmp_path)] == ["running"]
        process.send_signal(signal.SIGKILL)
        process.wait()
    (row,) = directory.list_runs(tmp_path)
    assert row.status == "interrupted"
    with lock.acquire(Path(row.path)):
        assert directory.list_runs(tmp_path)[0].status == "running"
    directory.update_manifest(Path(row.path), status="finished", steps=10)
    assert (directory.list_runs(tmp_path)[0].status, directory.list_runs(tmp_path)[0].steps) == (
        "finished",
        10,
    )


def test_a_process_of_an_older_version_is_known_by_its_number_and_start(tmp_path: Path):
    run = new_run(tmp_path)
    began = Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19]
    record = manifest.stored_manifest(run)
    for start_time, status in ((began, "running"), ("1", "interrupted")):
        record["process"] = {
            "pid": os.getpid(),
            "hostname": socket.gethostname(),
            "start_time": start_time,
        }
        assert manifest.run_status(run, record) == status


def test_list_shows_broken_directories_as_unreadable(tmp_path: Path):
    assert directory.list_runs(tmp_path / "none") == []
    good = new_run(tmp_path)
    directory.update_manifest(good, status="finished")
    broken = {
        "e": '{"steps": ' + "9" * 5000 + "}",
        "a": "{",
        "b": "[]",
        "c": json.dumps({"env": "x", "seeds": "many"}),
        "d": '{"process": 3}',
    }
    broken["e"] = '{"steps": ' + "9" * 5000 + "}"
    for name, text in broken.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text("{}")
        (tmp_path / name / "manifest.json").write_text(text)
    (tmp_path / "pipe").mkdir()
    os.mkfifo(tmp_path / "pipe" / "config.json")
    (tmp_path / "zero").mkdir()
    (tmp_path / "zero" / "config.json").symlink_to("/dev/zero")
    broken |= {"pipe": "", "zero": ""}
    (tmp_path / "unrelated").mkdir()
    (tmp_path / "file.txt").write_text("")
    (tmp_path / ".IcyLake-canary-1").mkdir()
    rows = directory.list_runs(tmp_path)
    assert rows[0] == directory.RunRow(str(good), HEADLINE, 0, "finished", rows[0].started)
    assert {Path(row.path).name: row.status for row in rows[1:]} == dict.fromkeys(
        broken, "unreadable"
    )


def test_runs_are_found_by_path_and_name_and_suggested(tmp_path: Path):
    with pytest.raises(CanaryError, match=r"start one with `canary train`"):
        directory.find_run("x", tmp_path)
    older = new_run(tmp_path)
    directory.update_manifest(older, started="2020-01-01T00:00:00+00:00")
    newer = new_run(tmp_path, dataclasses.replace(HEADLINE, env="PointGoal"))
    assert directory.find_run(str(older), tmp_path / "elsewhere") == older
    assert directory.find_run(older.name, tmp_path) == older
    assert directory.find_run("latest", tmp_path) == newer
    with pytest.raises(CanaryError, match=f'did you mean "{newer.name}"'):
        directory.find_run("PointGaol-canary", tmp_path)
    with pytest.raises(CanaryError, match="is a directory but not a run"):
        directory.find_run(str(tmp_path), tmp_path)


def subprocess_environment() -> dict[str, str]:
    source = Path(directory.__file__).parents[2]
    return os.environ | {"PYTHONPATH": str(source)}


def test_a_draft_that_a_kill_left_is_removed_by_the_next_run(tmp_path: Path):
    for name, age in (
        (f".x-{'0' * 16}.draft", 100),
        (f".x-{'1' * 16}.draft", 0),
        (".x-mine.draft", 100),
    ):
        (tmp_path / name).mkdir()
        os.utime(tmp_path / name, (time.time() - age,) * 2)
    run = new_run(tmp_path)
    left = sorted(path.name for path in tmp_path.iterdir() if path != run)
    assert left == [f".x-{'1' * 16}.draft", ".x-mine.draft"]
