"""Run directories: never overwritten or half-written, correct after a kill, listed even when
broken, and trained by one process at a time."""

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from attacks.death import Mortal
from canary.errors import CanaryError
from canary.runs import directory, tables
from canary.runs.manifest import (
    check_labels,
    hold,
    is_held,
    read_config,
    stored_manifest,
    update_manifest,
)
from canary.runs.tables import append_parts, compact, discard_after, read_table


def new_run(root: Path, env: str = "IcyLake") -> Path:
    config = {
        "environment": {"name": env},
        "algorithm": {"name": "canary"},
        "training": {"seeds": [0, 1]},
    }
    return directory.create(root, config, 4000)


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
    return pl.DataFrame(rows, schema=list(tables.COLUMNS["episodes"]), orient="row")


def append(run: Path, first: int, last: int) -> None:
    frames = {"metrics": metrics(first, last), "episodes": episodes(first, last)}
    append_parts(run, frames, first, last)  # type: ignore[arg-type]


def assert_holds(run: Path, last: int) -> None:
    """The run's tables are those of an uninterrupted run of `last` iterations."""
    assert_frame_equal(read_table(run, "metrics"), metrics(0, last).sort("seed", "iteration"))
    assert_frame_equal(read_table(run, "episodes"), episodes(0, last))


def test_every_run_gets_its_own_directory_with_a_usable_name(tmp_path: Path):
    runs = [new_run(tmp_path) for _ in range(3)]
    runs.append(new_run(tmp_path, "../my.module:Factory()"))
    assert len(set(runs)) == 4
    assert sorted(tmp_path.iterdir()) == sorted(runs)
    assert runs[-1].name.startswith("my.module-Factory-canary-")


def test_names_and_tags_are_checked(tmp_path: Path):
    (tmp_path / "taken").mkdir()
    for name in ("taken", "latest", "a/b", ".x", "", "x" * 101):
        with pytest.raises(CanaryError, match=r"exists already|letters"):
            check_labels(tmp_path, name, ())
    for tag in ("", "a,b", " a", "x" * 60):
        with pytest.raises(CanaryError, match="tag"):
            check_labels(tmp_path, None, [tag])
    check_labels(tmp_path, "new", ["one"])


@pytest.mark.parametrize("act", ["compact", "go back", "go back from joined", "append"])
def test_a_kill_at_any_write_loses_and_doubles_nothing(tmp_path: Path, act: str):
    write, killed = 0, Mortal(1)
    while write == 0 or killed.is_dead:
        write += 1
        run, killed = new_run(tmp_path), Mortal(write)
        append(run, 0, 3)
        append(run, 3, 5)
        if act == "go back from joined":
            compact(run)
        with killed:
            match act:
                case "compact":
                    compact(run)
                case "append":
                    append(run, 5, 6)
                case _:
                    discard_after(run, 4)
        if act == "compact":
            assert_holds(run, 5)
        discard_after(run, 4)  # what the next process does first
        append(run, 4, 6)
        assert_holds(run, 6)
        assert len(list((run / "metrics").glob("part*"))) <= 3
    assert write > 3


def test_no_flipped_bit_passes(tmp_path: Path):
    run = new_run(tmp_path)
    append(run, 0, 3)
    compact(run)

    def content() -> str:
        found = read_config(run), stored_manifest(run)
        return repr((found, read_table(run, "episodes").to_dicts()))

    before = content()
    for name in ("episodes.parquet", "manifest.json", "config.json"):
        data = (run / name).read_bytes()
        for place in range(0, len(data), 7):
            (run / name).write_bytes(
                data[:place] + bytes([data[place] ^ (1 << place % 7)]) + data[place + 1 :]
            )
            with contextlib.suppress(CanaryError):
                assert content() == before  # white space, for example
        (run / name).write_bytes(data)


HOLD = """
import sys
from pathlib import Path
from canary.runs import manifest
with manifest.hold(Path(sys.argv[1])):
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
    maker = f"is being trained by process {os.getpid()} on"
    with pytest.raises(CanaryError, match=maker), hold(run):
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
        (tmp_path / name / "config.json").write_text("{}")
        (tmp_path / name / "manifest.json").write_text(text)
    (tmp_path / "pipe").mkdir()
    os.mkfifo(tmp_path / "pipe" / "config.json")
    (tmp_path / "unrelated").mkdir()
    (tmp_path / ".IcyLake-canary-1").mkdir()
    rows = directory.list_runs(tmp_path)
    assert {Path(row["path"]).name: row["status"] for row in rows} == {
        good.name: "finished",
        **dict.fromkeys([*broken, "pipe"], "unreadable"),
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
    with pytest.raises(CanaryError, match=f'did you mean "{newer.name}"'):
        directory.find_run("PointGaol-canary", tmp_path)
    with pytest.raises(CanaryError, match="is a directory but not a run"):
        directory.find_run(str(tmp_path), tmp_path)


def test_a_small_file_with_a_billion_rows_is_refused(tmp_path: Path):
    """A table that says more rows than the run has steps, and a manifest that lists it."""
    run = new_run(tmp_path)
    many = pl.DataFrame({"seed": pl.zeros(8001, dtype=pl.Int32, eager=True)})
    listed = dict([tables._write(run, "metrics.parquet", many)])
    update_manifest(run, tables=listed)
    with pytest.raises(CanaryError, match="8,001 rows, more than the run has steps"):
        read_table(run, "metrics")
