"""The edge: hostile names and broken streams end in one sentence; so does a bug."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from canary.cli import show
from canary.cli.main import BUG, main
from canary.errors import CanaryError
from canary.runs import directory
from canary.runs.files import sealed, write_json
from canary.runs.manifest import update_manifest
from runs.untrained_runs import untrained_run
from tiny_runs import command, environment

HEADLINE = directory.Headline("IcyLake", "canary", 1, 10)


def made(root):
    return directory.create(root, HEADLINE, {}, device="", command=[])


def sentence(capsys, arguments, code=2):
    assert main(arguments) == code
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "Traceback" not in said
    return said


def test_mistakes_with_a_run_are_sentences(tmp_path, capsys, monkeypatch):
    run = str(untrained_run(tmp_path / "runs"))
    for arguments, words in (
        (["certify", run, "--seed", "4294967296"], "at most 2147483647"),
        (["certify", run, "--replay"], "works only with --verify"),
        (["certify", run, "--shift", "horizon=99999999999"], "too large"),
        (["certify", run, "--sign", "no-such-key"], "There is no key"),
        (["export", run, "--file", "x" * 300], "Cannot write"),
    ):
        assert words in sentence(capsys, arguments)

    def full(*_):
        raise CanaryError("Cannot write here (No space left on device); choose a place.")

    monkeypatch.setattr("canary.certification.run.files.check_writable", full)
    monkeypatch.setattr("canary.certification.run.gather", lambda *a, **k: pytest.fail("it played"))
    assert "No space left" in sentence(capsys, ["certify", run])


class PanicException(BaseException):
    """As polars raises it."""


@pytest.mark.parametrize("kind", [ZeroDivisionError, PanicException])
def test_what_nobody_foresaw_is_one_sentence_and_a_file(kind, capsys, monkeypatch):
    def broken(command):
        raise kind("a \x1b[31mred\x1b[0m surprise\nand more")

    monkeypatch.setattr(show.List, "__call__", broken)
    said = sentence(capsys, ["list"], BUG)
    assert f"{kind.__name__}: a \\x1b[31mred" in said
    path = Path(said.split(" is in ")[1].split(":")[0])
    assert "raise kind(" in path.read_text()
    path.unlink()
    monkeypatch.setenv("CANARY_TRACEBACK", "1")
    assert main(["list"]) == BUG
    assert "Traceback (most recent call last)" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["nan", "digits", "pipe", "seconds"])
def test_one_bad_run_never_hides_the_others(capsys, tmp_path, name):
    good, bad = made(tmp_path), made(tmp_path)
    place = bad / "summary.json"
    if name == "pipe":
        os.mkfifo(place)
    elif name == "seconds":
        update_manifest(bad, train_seconds="x")
    else:
        place.write_text(f'{{"return_mean": {"NaN" if name == "nan" else "9" * 400}}}')
    assert main(["list", "--out", str(tmp_path), "--json", "-"]) == 0
    listed = json.loads(capsys.readouterr().out)["runs"]
    assert {Path(row["path"]).name for row in listed} == {good.name, bad.name}


def test_a_summary_that_was_changed_is_not_shown(capsys, tmp_path):
    place = made(tmp_path) / "summary.json"
    write_json(place, sealed({"return_mean": 0.25, "violation_probability": 0.5}))
    for before, after, shown in (("0.5", "0.5", 0.5), ("0.5", "0.1", None)):
        place.write_text(place.read_text().replace(before, after))
        assert main(["list", "--out", str(tmp_path), "--json", "-"]) == 0
        (listed,) = json.loads(capsys.readouterr().out)["runs"]
        assert listed["violation_probability"] == shown


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_standard_output_and_an_ascii_terminal(tmp_path):
    line = command("list", "--out", str(tmp_path))
    streams = {"text": True, "env": environment() | {"PYTHONIOENCODING": "ascii"}, "timeout": 300}
    with open("/dev/full", "w") as full:
        done = subprocess.run(line, stdout=full, stderr=subprocess.PIPE, **streams)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "Standard output cannot be written (No space left on device)" in done.stderr
    (tmp_path / "ελ").mkdir()
    (tmp_path / "ελ" / "config.json").write_text("{}")
    done = subprocess.run(line, capture_output=True, **streams)
    assert (done.returncode, done.stderr) == (0, "")
    assert "\\u03b5" in done.stdout
