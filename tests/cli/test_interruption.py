"""Ctrl-C before anything was trained: no checkpoint, no traceback, and a run that can be gone on
with."""

import os
import signal
from pathlib import Path

import pytest

from canary.cli import main
from canary.runs import directory
from canary.runs.seeds import SeedGroups
from tiny_runs import FLAGS


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["Ctrl-C", "SIGTERM"])
@pytest.mark.parametrize("times", [1, 2], ids=["after the chunk", "at once"])
def test_while_compiling(
    times: int,
    number: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    def interrupt(groups: SeedGroups) -> None:
        for _ in range(times):
            os.kill(os.getpid(), number)

    monkeypatch.setattr(SeedGroups, "structure", lambda groups: None)
    monkeypatch.setattr(SeedGroups, "start", lambda groups: None)
    monkeypatch.setattr(SeedGroups, "compile", interrupt)
    assert main(["train", *FLAGS, "--seeds", "1", "--out", str(tmp_path)]) == 130
    (row,) = directory.list_runs(tmp_path)
    assert (row.status, row.steps) == ("interrupted", 0)
    shown = capsys.readouterr()
    assert f"Interrupted and saved; go on with: canary train --resume {row.path}" in shown.err
    assert "Traceback" not in shown.err + shown.out
