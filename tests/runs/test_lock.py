"""One process trains a run, on one machine or on several; the others are told who it is."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from canary.errors import CanaryError
from canary.runs import lock

HOLD = """
import sys, socket
from pathlib import Path
if sys.argv[2]:
    socket.gethostname = lambda: sys.argv[2]
from canary.runs import lock
try:
    held = lock.acquire(Path(sys.argv[1]))
except lock.CanaryError as error:
    print(error, flush=True)
    sys.exit(2)
print("held", flush=True)
sys.stdin.readline()
try:
    held.check()
except lock.CanaryError as error:
    print(error, flush=True)
held.release()
"""


def hold(run: Path, host: str = "") -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(run), host],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def test_a_second_process_is_told_who_the_first_one_is(tmp_path: Path):
    first = hold(tmp_path)
    assert lock.holder(tmp_path).pid == first.pid  # type: ignore[union-attr]
    for force in (False, True):  # a living process of this machine is never overruled
        with pytest.raises(
            CanaryError, match=rf"is being trained by process {first.pid}, since 20.*stop it first"
        ):
            lock.acquire(tmp_path, force=force)
    first.communicate("\n")
    assert list(tmp_path.iterdir()) == []
    with lock.acquire(tmp_path):
        assert lock.holder(tmp_path).pid == os.getpid()  # type: ignore[union-attr]
    assert lock.holder(tmp_path) is None


def test_a_killed_holder_holds_nothing(tmp_path: Path):
    first = hold(tmp_path)
    first.send_signal(signal.SIGKILL)
    first.communicate()
    assert lock.holder(tmp_path) is None
    lock.acquire(tmp_path).release()
    assert list(tmp_path.iterdir()) == []


def elsewhere(run: Path, age: float) -> Path:
    """A lease of another machine, whose own lock cannot be seen from here."""
    path = run / lock.NAME
    path.write_text(
        json.dumps({"token": "x", "pid": 7, "host": "far-away", "since": "2026-01-31T12:00:00"})
    )
    os.utime(path, (time.time() - age,) * 2)
    return path


def test_a_fresh_lease_of_another_machine_is_respected_and_an_old_one_taken_over(tmp_path: Path):
    elsewhere(tmp_path, 10)
    assert lock.holder(tmp_path).host == "far-away"  # type: ignore[union-attr]
    with pytest.raises(
        CanaryError, match=r"process 7 on far-away, .*sign of life 1\d s ago.*runs out in [45]\d s"
    ):
        lock.acquire(tmp_path)
    elsewhere(tmp_path, lock.LEASE_SECONDS + 1)
    assert lock.holder(tmp_path) is None
    lock.acquire(tmp_path).release()


def test_a_clock_that_went_backwards_does_not_make_a_lease_old(tmp_path: Path):
    elsewhere(tmp_path, -3600)
    assert lock.holder(tmp_path).age < 0  # type: ignore[union-attr]
    with pytest.raises(CanaryError, match=r"after now: a clock was set back.*--force") as refused:
        lock.acquire(tmp_path)
    assert "runs out" not in str(refused.value)  # nobody can tell when
    lock.acquire(tmp_path, force=True).release()


def test_force_overrules_another_machine_which_notices_it(tmp_path: Path):
    first = hold(tmp_path, "far-away")
    with pytest.raises(CanaryError, match="--force takes the run over"):
        lock.acquire(tmp_path)
    with lock.acquire(tmp_path, force=True) as mine:
        said, _ = first.communicate("\n")
        assert f"was taken over by process {os.getpid()}" in said
        mine.check()
    assert list(tmp_path.iterdir()) == []


def test_a_lease_is_renewed_while_it_is_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(lock, "RENEW_SECONDS", 0.05)
    with lock.acquire(tmp_path):
        os.utime(tmp_path / lock.NAME, (0, 0))
        time.sleep(0.5)
        assert (tmp_path / lock.NAME).stat().st_mtime > 0


def test_of_many_that_start_at_once_one_wins(tmp_path: Path):
    started = [
        subprocess.Popen(
            [sys.executable, "-c", HOLD, str(tmp_path), ""],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )
        for _ in range(4)
    ]  # fmt: skip
    lines = [process.stdout.readline() for process in started]  # type: ignore[union-attr]
    assert sum(line == "held\n" for line in lines) == 1
    for process in started:
        process.communicate("\n")


@pytest.mark.parametrize("content", ["", "{", "[]", '{"pid": "x"}', "\0" * 5000])
def test_a_damaged_lock_file_does_not_stand_in_the_way(tmp_path: Path, content: str):
    (tmp_path / lock.NAME).write_text(content)
    assert lock.holder(tmp_path) is None
    lock.acquire(tmp_path).release()


def test_a_link_in_the_place_of_the_lock_is_not_followed(tmp_path: Path):
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / lock.NAME).symlink_to(victim)
    with pytest.raises(CanaryError, match="Cannot write"):
        lock.acquire(tmp_path / "run")
    assert victim.read_text() == "precious"
