"""The question whether somebody's code may be imported, asked and answered in a real terminal."""

import json
import os
import pty
import subprocess
from pathlib import Path

import pytest

import canary
from problems.faulty_environments import Walk
from runs.untrained_runs import untrained_run
from tiny_runs import SOURCE, command, environment

QUESTION = "Import and call this code? [y/N] "


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    constraint = canary.Chance(limit=9.0, epsilon=0.2)
    return untrained_run(
        tmp_path_factory.mktemp("runs"), env=Walk(noise=0.25), constraint=constraint, seeds=(0,)
    )


def in_a_terminal(arguments: list[str], home, answer: str | None) -> tuple[int, str]:
    """Exit code of a command and all that its terminal showed; the answer is typed when the
    question is there."""
    shown, ours, theirs = "", *pty.openpty()
    paths = os.pathsep.join(map(str, (SOURCE, SOURCE.parent / "tests", SOURCE.parent)))
    settings = environment() | {"PYTHONPATH": paths, "XDG_CONFIG_HOME": str(home)}
    streams = {"stdin": theirs, "stdout": theirs, "stderr": theirs}
    with subprocess.Popen(command(*arguments), env=settings, **streams) as process:
        os.close(theirs)
        while True:
            try:
                part = os.read(ours, 4096)
            except OSError:  # of a terminal that nobody holds any more
                break
            if not part:
                break
            shown += part.decode()
            if answer is not None and QUESTION in shown:
                os.write(ours, f"{answer}\n".encode())
                answer = None
    os.close(ours)
    return process.returncode, shown.replace("\r\n", "\n")


def test_only_a_yes_imports_and_it_is_asked_once(run, tmp_path):
    export = ["export", str(run), "--format", "numpy", "--quiet"]
    code, shown = in_a_terminal(export, tmp_path, "")  # Return alone is no
    assert code == 2
    assert shown.startswith(f"{run} was trained on problems.faulty_environments:Walk(")
    assert "noise=0.25" in shown.partition(QUESTION)[0]
    assert "If you trust it, say --trust" in shown.partition(QUESTION)[2]
    assert not (tmp_path / "canary").exists()
    code, shown = in_a_terminal(export, tmp_path, "yes")
    assert (code, shown.count(QUESTION)) == (0, 1)
    kept = json.loads((tmp_path / "canary" / "trusted.json").read_text())["trusted"]
    assert [(entry["run"], entry["name"]) for entry in kept] == [
        (str(run.resolve()), "problems.faulty_environments:Walk")
    ]
    code, shown = in_a_terminal(export, tmp_path, None)
    assert code == 0
    assert QUESTION not in shown
