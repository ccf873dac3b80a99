"""The edge: wrong command lines, hostile names and broken streams end in one sentence; so does what
nobody foresaw."""

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from rich.text import Text

from canary.cli import failures, listing
from canary.cli.main import main
from canary.errors import CanaryError
from canary.runs import directory
from canary.runs.files import sealed
from canary.terminal.console import PlainConsole, printable
from runs.untrained_runs import untrained_run
from tiny_runs import command, environment


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return untrained_run(tmp_path_factory.mktemp("runs"))


def sentence(capsys: pytest.CaptureFixture[str], arguments: list[str], code: int = 2) -> str:
    assert main(arguments) == code
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "Traceback" not in said
    return said


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["evaluate", "RUN", "--seeds", "0"], "take 1 to 2 of them"),
        (["evaluate", "RUN", "--seeds", "9"], "the run has 2 seeds"),
        (["certify", "RUN", "--seeds", "9"], "the run has 2 seeds"),
        (["evaluate", "RUN", "--episodes", "9999999999999"], "whole number below 10**12"),
        (["evaluate", "RUN", "--seeds", "9" * 5000], "--seeds takes"),
        (["certify", "RUN", "--seed", "4294967296"], "below 2**31"),
        (["certify", "--verify", "nope"], "There is no certificate nope"),
        (["certify", "--verify", "a\0b"], "a\\x00b"),
        (["certify", "RUN", "--replay"], "it belongs to --verify"),
        (["certify", "RUN", "--shift", "horizon=99999999999"], "too large"),
        (["certify", "--verify", "x", "--sign", "key"], "Leave out --sign"),
        (["certify", "RUN", "--sign", "no-such-key"], "There is no key"),
        (["frontier", "--limit", "1e300"], "between 1e-30 and 1e30"),
        (["train", "--limit", "1e-300"], "between 1e-30 and 1e30"),
        (["train", "--set", f"algo.hidden={'[' * 2000}"], "algo.estimation.hidden"),
        (["train", "--out", "a\0b"], "Cannot write"),
        (["train", "--out", "x" * 300], "Cannot write"),
        (
            ["train", "--total-steps", "1000", "--set", "training.environments=2000"],
            "total_steps (1000)",
        ),
        (["evaluate", "x" * 300], "cannot be the name of a run"),
        (["evaluate", "a\0b"], "no run"),
        (["list", "--json", "a\0b"], "--json cannot write"),
        (["list", "--json", "x" * 300], "--json cannot write"),
        (["bench", "--seeds", "999999999999"], "at most 10,000"),
        (["export", "RUN", "--file", "x" * 300], "Cannot write"),
    ],
)
def test_mistakes_are_one_sentence(
    run: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path,
    arguments: list[str], words: str,
):  # fmt: skip
    monkeypatch.chdir(tmp_path)
    said = sentence(capsys, [str(run) if word == "RUN" else word for word in arguments])
    assert words in said
    assert list(tmp_path.iterdir()) == []


def test_certifying_where_nothing_can_be_written_fails_before_playing(
    run: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    def full(*_: object) -> None:
        raise CanaryError("Cannot write here (No space left on device); choose a place.")

    monkeypatch.setattr("canary.certification.run.files.check_writable", full)
    monkeypatch.setattr(
        "canary.certification.run.certify", lambda *a, **k: pytest.fail("it played")
    )
    assert "No space left" in sentence(capsys, ["certify", str(run)])


def test_what_nobody_foresaw_is_one_sentence_and_a_file(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    def broken(options: object) -> int:
        raise ZeroDivisionError("a \x1b[31mred\x1b[0m surprise\nand more")

    monkeypatch.setitem(
        sys.modules["canary.cli.main"].__dict__, "COMMANDS", {"list": (listing.List, broken)}
    )
    said = sentence(capsys, ["list"], failures.BUG)
    assert "ZeroDivisionError: a \\x1b[31mred" in said
    path = Path(said.split(" is in ")[1].split(":")[0])
    assert "raise ZeroDivisionError" in path.read_text()
    path.unlink()
    monkeypatch.setenv("CANARY_TRACEBACK", "1")
    assert main(["list"]) == failures.BUG
    assert "Traceback (most recent call last)" in capsys.readouterr().err


def test_a_panic_of_a_library_is_a_sentence_too(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    class PanicException(BaseException):
        """As polars raises it."""

    def broken(options: object) -> int:
        raise PanicException("called `Option::unwrap()` on a `None` value")

    monkeypatch.setitem(
        sys.modules["canary.cli.main"].__dict__, "COMMANDS", {"list": (listing.List, broken)}
    )
    assert "PanicException" in sentence(capsys, ["list"], failures.BUG)


HOSTILE = "x[not a tag]y[b]\x1b[2J\x07\u202e[red]"


def test_names_are_printed_as_text(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("COLUMNS", "200")  # wide enough for the whole name on one line
    root = tmp_path / "runs"
    made = directory.create(
        root, directory.Headline("IcyLake", "canary", 1, 10), {}, device="", command=[]
    )
    made.rename(root / HOSTILE)
    assert main(["list", "--out", str(root)]) == 0
    shown = capsys.readouterr().out
    assert all(part in shown for part in ("x[not a tag]y[b]", "\\x1b[2J", "\\u202e[red]"))
    assert not {"\x1b", "\x07", "\u202e"} & set(shown)
    assert "\\x1b" in sentence(capsys, ["evaluate", f"{HOSTILE}z", "--out", str(root)])


def test_the_console_obeys_its_own_styles_and_no_others():
    out = io.StringIO()
    PlainConsole(file=out, force_terminal=True, width=80).print(
        Text("a\x1b[5mb [bold]c[/]", "red"), ":smile:"
    )
    assert "\x1b[31m" in out.getvalue()
    assert "\x1b[5m" not in out.getvalue()
    assert "a\\x1b[5mb [bold]c[/]" in out.getvalue()
    assert ":smile:" in out.getvalue()
    assert printable("tab\tand\nnewline stay") == "tab\tand\nnewline stay"


@pytest.mark.parametrize("name", ["nan", "digits", "pipe", "zero", "text", "seconds"])
def test_one_bad_run_never_hides_the_others(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, name: str
):
    headline = directory.Headline("IcyLake", "canary", 1, 10)
    good, bad = (directory.create(tmp_path, headline, {}, device="", command=[]) for _ in range(2))
    place = bad / "summary.json"
    match name:
        case "pipe":
            os.mkfifo(place)
        case "zero":
            place.symlink_to("/dev/zero")
        case "seconds":
            directory.update_manifest(bad, train_seconds="x")
        case _:
            text = {"nan": "NaN", "digits": "9" * 400, "text": '"x"'}[name]
            place.write_text(f'{{"return_mean": {text}, "violation_probability": 0.5}}')
    assert main(["list", "--out", str(tmp_path), "--json", "-"]) == 0
    listed = json.loads(capsys.readouterr().out)["runs"]
    assert {Path(row["path"]).name for row in listed} == {good.name, bad.name}
    assert main(["list", "--out", str(tmp_path)]) == 0


def test_a_summary_that_was_changed_is_not_shown(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
):
    headline = directory.Headline("IcyLake", "canary", 1, 10)
    place = directory.create(tmp_path, headline, {}, device="", command=[]) / "summary.json"
    directory.write_json(place, sealed({"return_mean": 0.25, "violation_probability": 0.5}))
    for before, after, shown in (("0.5", "0.5", 0.5), ("0.5", "0.1", None)):
        place.write_text(place.read_text().replace(before, after))
        assert main(["list", "--out", str(tmp_path), "--json", "-"]) == 0
        (listed,) = json.loads(capsys.readouterr().out)["runs"]
        assert listed["violation_probability"] == shown


def test_what_nobody_sees_in_a_name_is_shown():
    assert (
        printable("a\u200bb\ufeffc\u2060d\u00ade\U000e0041")
        == "a\\u200bb\\ufeffc\\u2060d\\xade\\U000e0041"
    )
    assert printable("می\u200cخواهم") == "می\u200cخواهم"  # a joiner that Persian needs


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_standard_output_and_an_ascii_terminal(tmp_path: Path):
    quiet = environment() | {"PYTHONIOENCODING": "ascii"}
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            command("list", "--out", str(tmp_path)),
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            env=quiet,
            timeout=300,
        )
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "Standard output cannot be written (No space left on device)" in done.stderr
    (tmp_path / "ελ").mkdir()
    (tmp_path / "ελ" / "config.json").write_text("{}")
    done = subprocess.run(
        command("list", "--out", str(tmp_path)),
        capture_output=True,
        text=True,
        env=quiet,
        timeout=300,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "\\u03b5" in done.stdout
    assert sys.platform != "win32"
