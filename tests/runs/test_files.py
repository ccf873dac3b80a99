"""Files appear whole or not at all."""

import os
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


def test_an_interrupted_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    files.write_json(tmp_path / "a.json", {"old": 1})
    monkeypatch.setattr(os, "replace", interrupt)
    with pytest.raises(KeyboardInterrupt):
        files.write_json(tmp_path / "a.json", {"new": 2})
    assert files.read_json(tmp_path / "a.json") == {"old": 1}
    assert names(tmp_path) == ["a.json"]


def test_what_a_killed_writer_left_is_written_again(tmp_path: Path):
    (tmp_path / ".a.json.tmp").write_text("{")
    files.write_json(tmp_path / "a.json", {"new": 2})
    assert names(tmp_path) == ["a.json"]


def test_only_regular_files_are_read_and_replaced(tmp_path: Path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    for name in ("pipe", "folder"):
        with pytest.raises(CanaryError, match="is damaged"):
            files.read_json(tmp_path / name)
        with pytest.raises(CanaryError, match=r"not a regular file|is a directory"):
            files.write_json(tmp_path / name, {})
    assert names(tmp_path) == ["folder", "pipe"]
    with pytest.raises(CanaryError, match="is missing"):
        files.read_json(tmp_path / "none")


@pytest.mark.parametrize(
    "text", ['{"a": NaN}', '{"a": 1e999}', "[1]", "[" * 100_000, '{"a": ' + "9" * 5000 + "}"]
)
def test_json_without_finite_numbers_is_refused(tmp_path: Path, text: str):
    (tmp_path / "x.json").write_text(text)
    with pytest.raises(CanaryError, match="is damaged"):
        files.read_json(tmp_path / "x.json")


def test_a_changed_file_does_not_match_its_seal(tmp_path: Path):
    path = tmp_path / "x.json"
    files.write_sealed(path, {"a": 1})
    assert files.read_sealed(path) == {"a": 1}
    stored = files.read_json(path)
    for changed in (stored | {"a": 2}, {"a": 1}):
        files.write_json(path, changed)
        with pytest.raises(CanaryError, match="does not match its digest"):
            files.read_sealed(path)


def test_a_place_that_cannot_be_written_is_found_before_any_work(tmp_path: Path):
    files.check_writable(tmp_path)
    assert names(tmp_path) == []
    with pytest.raises(CanaryError, match="Cannot write"):
        files.check_writable(tmp_path / "missing")
