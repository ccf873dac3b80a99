"""One process at a time trains a run."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from canary.errors import CanaryError
from canary.runs import lock

HOLD = """
import sys
from pathlib import Path
from canary.runs import lock
try:
    with lock.held(Path(sys.argv[1])):
        print("held", flush=True)
        sys.stdin.readline()
except lock.CanaryError as error:
    print(error, flush=True)
"""


def claim(run: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", HOLD, str(run)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def said(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline()


def test_of_many_that_start_at_once_one_wins_and_the_others_are_told(tmp_path: Path):
    started = [claim(tmp_path) for _ in range(4)]
    lines = [said(process) for process in started]
    assert lines.count("held\n") == 1
    assert sum("is being trained by another process" in line for line in lines) == 3
    assert lock.is_held(tmp_path)
    with pytest.raises(CanaryError, match="trained by process 7"), lock.held(tmp_path, "process 7"):
        pass
    for process in started:
        process.communicate("\n")
    assert not lock.is_held(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_killed_holder_holds_nothing(tmp_path: Path):
    first = claim(tmp_path)
    assert said(first) == "held\n"
    first.send_signal(signal.SIGKILL)
    first.communicate()
    assert not lock.is_held(tmp_path)
    with lock.held(tmp_path):
        assert lock.is_held(tmp_path)
    assert list(tmp_path.iterdir()) == []
