"""Files appear whole or not at all, never through links, and are read with a bound."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from canary.errors import CanaryError
from canary.runs import files


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_file_is_replaced_as_a_whole_and_nothing_else_is_left(tmp_path: Path):
    path = tmp_path / "one.json"
    for value in ({"a": 1}, {"a": 2, "b": "x" * 100_000}):
        files.write_json(path, value)
        assert files.read_json(path) == value
    assert names(tmp_path) == ["one.json"]
    mask = os.umask(0)
    os.umask(mask)
    assert path.stat().st_mode & 0o777 == 0o666 & ~mask


def test_a_link_in_the_place_of_a_file_is_replaced_and_its_target_untouched(tmp_path: Path):
    victim = tmp_path / "victim"
    victim.write_text("precious")
    place = tmp_path / "run" / "manifest.json"
    place.parent.mkdir()
    place.symlink_to(victim)
    files.write_atomically(place, b"new", within=tmp_path / "run")
    assert victim.read_text() == "precious"
    assert not place.is_symlink()
    assert place.read_bytes() == b"new"


def test_no_file_of_a_run_is_written_through_a_linked_directory(tmp_path: Path):
    run, outside = tmp_path / "run", tmp_path / "outside"
    (run / "deep").mkdir(parents=True)
    outside.mkdir()
    (run / "exports").symlink_to(outside)
    (run / "deep" / "er").symlink_to(outside)
    for place in (run / "exports" / "policy.npz", run / "deep" / "er" / "x" / "policy.npz"):
        with pytest.raises(CanaryError, match="is a link"):
            files.write_atomically(place, b"data", within=run)
    with pytest.raises(CanaryError, match="does not lie in"):
        files.write_atomically(outside / "policy.npz", b"data", within=run)
    assert names(outside) == []


def test_temporary_names_cannot_be_prepared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Even a guessed name, taken by a link, is refused and not followed."""
    victim = tmp_path / "victim"
    victim.write_text("precious")
    monkeypatch.setattr(files.secrets, "token_hex", lambda count: "0" * 2 * count)
    (tmp_path / ".one.json.0000000000000000.tmp").symlink_to(victim)
    with pytest.raises(CanaryError, match="Cannot write"):
        files.write_json(tmp_path / "one.json", {})
    assert victim.read_text() == "precious"


def test_what_a_killed_writer_left_is_removed_and_a_living_one_is_not_disturbed(tmp_path: Path):
    script = (
        "import os, signal, sys; from pathlib import Path; from canary.runs import files\n"
        "files.os.fsync = lambda descriptor: (print('writing', flush=True), sys.stdin.readline(), "
        "os.kill(os.getpid(), signal.SIGKILL))\n"
        f"files.write_atomically(Path({str(tmp_path / 'one.bin')!r}), b'half')\n"
    )
    writer = subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert writer.stdout is not None
    assert writer.stdout.readline() == "writing\n"
    files.remove_orphans(tmp_path)
    (left,) = names(tmp_path)
    assert files.TEMPORARY.fullmatch(left)
    writer.communicate("go\n")
    files.remove_orphans(tmp_path)
    assert names(tmp_path) == []


def test_long_names_and_odd_ones(tmp_path: Path):
    files.write_atomically(tmp_path / ("x" * 250), b"1")
    for name in ("y" * 300, "a\0b"):
        with pytest.raises(CanaryError, match="Cannot write"):
            files.write_atomically(tmp_path / name, b"1")
    assert names(tmp_path) == ["x" * 250]


def test_pipes_devices_and_giants_are_not_read(tmp_path: Path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "zero").symlink_to("/dev/zero")
    with open(tmp_path / "giant", "wb") as file:
        file.truncate(files.LARGEST_JSON + 1)
    for name in ("pipe", "zero", "giant"):
        with pytest.raises(CanaryError, match="is damaged"):
            files.read_json(tmp_path / name)
    with pytest.raises(CanaryError, match="missing; there is nothing here"):
        files.read_json(tmp_path / "none", "there is nothing here")


@pytest.mark.parametrize(
    "text",
    [
        '{"a": NaN}',
        '{"a": 1e999}',
        '{"a": -Infinity}',
        '{"a": 1, "a": 2}',
        "[1]",
        "[" * 100_000,
        "{",
    ],
)
def test_json_that_readers_could_take_differently_is_refused(tmp_path: Path, text: str):
    (tmp_path / "x.json").write_text(text)
    with pytest.raises(CanaryError, match="is damaged"):
        files.read_json(tmp_path / "x.json")


def test_a_number_of_many_digits_is_refused(tmp_path: Path):
    (tmp_path / "x.json").write_text(json.dumps({"a": 1})[:-2] + "9" * 5000 + "}")
    with pytest.raises(CanaryError, match="is damaged"):
        files.read_json(tmp_path / "x.json")


def test_a_place_without_permission_is_found_out_before_any_work(tmp_path: Path):
    files.check_writable(tmp_path)
    assert names(tmp_path) == []
    with pytest.raises(CanaryError, match="Cannot write"):
        files.check_writable(tmp_path / "missing")
