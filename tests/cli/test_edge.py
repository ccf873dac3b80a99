"""The edge: wrong arguments and damaged runs end in one sentence, a bug in its traceback."""

import json
import os
from pathlib import Path

import pytest

from canary.cli import show
from canary.cli.main import BUG, main
from canary.errors import CanaryError
from canary.runs import directory
from canary.runs.files import write_sealed
from canary.runs.manifest import update_manifest
from runs.untrained_runs import untrained_run

CONFIG = {
    "environment": {"name": "IcyLake"},
    "algorithm": {"name": "canary"},
    "training": {"seeds": [0]},
}


def made(root):
    return directory.create(root, CONFIG, 10)


def listed(capsys, root):
    assert main(["list", "--out", str(root), "--json", "-"]) == 0
    return json.loads(capsys.readouterr().out)["runs"]


def test_mistakes_with_a_run_are_sentences(tmp_path, capsys, monkeypatch):
    run = str(untrained_run(tmp_path / "runs"))

    def sentence(*arguments):
        assert main([*arguments]) == 2
        said = capsys.readouterr().err
        assert said.count("\n") == 1
        return said

    assert "works only with --verify" in sentence("certify", run, "--replay")
    assert "must be at most" in sentence("certify", run, "--shift", "horizon=99999999999")
    assert "There is no key" in sentence("certify", run, "--sign", "no-such-key")
    assert "Cannot write" in sentence("export", run, "--file", "x" * 300)

    def full(*_):
        raise CanaryError("Cannot write here (No space left on device); choose a place.")

    monkeypatch.setattr("canary.certification.run.files.check_writable", full)
    monkeypatch.setattr("canary.certification.run.gather", lambda *a, **k: pytest.fail("it played"))
    assert "No space left" in sentence("certify", run)


class PanicException(BaseException):
    """As polars raises it."""


@pytest.mark.parametrize("kind", [ZeroDivisionError, PanicException])
def test_a_bug_shows_its_traceback_and_has_an_exit_code_of_its_own(kind, capsys, monkeypatch):
    def broken(command):
        raise kind("a surprise")

    monkeypatch.setattr(show.List, "__call__", broken)
    assert main(["list"]) == BUG
    said = capsys.readouterr().err
    assert "raise kind(" in said
    assert said.splitlines()[-1].startswith("canary failed unexpectedly")


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
    names = {Path(row["path"]).name for row in listed(capsys, tmp_path)}
    assert names == {good.name, bad.name}


def test_a_summary_that_was_changed_is_not_shown(capsys, tmp_path):
    place = made(tmp_path) / "summary.json"
    write_sealed(place, {"return_mean": 0.25, "violation_probability": 0.5})
    for before, after, shown in (("0.5", "0.5", 0.5), ("0.5", "0.1", None)):
        place.write_text(place.read_text().replace(before, after))
        (row,) = listed(capsys, tmp_path)
        assert row["violation_probability"] == shown
