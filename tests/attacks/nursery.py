"""Real processes that start in a moment: a nursery has imported canary and forks a child for every
command.

JAX is imported there but not started, so a child starts it as any process does; programs that an
earlier child compiled are read from a cache. A child could not inherit them: XLA's threads, on
which they run, do not survive a fork. `python -m attacks.nursery` reads lines of JSON, a list of
commands each, runs those of a line at once, and answers with a list of how they ended.
"""

import importlib
import json
import mmap
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from attacks.death import Mortal
from canary.reporting import figures

TESTS = Path(__file__).resolve().parents[1]
MODULES = (
    "canary.api", "canary.certification.run", "canary.export.run", "canary.rendering.run", "canary.reporting.figures",
    "canary.studies.runner", "attacks.small",
)  # fmt: skip


class Nursery:
    """The other end: commands go in, and how they ended comes out."""

    def __init__(self, cache: Path | None = None):
        path = os.pathsep.join([str(TESTS), str(TESTS.parent / "src")])
        settings = {"PYTHONPATH": path, "JAX_PLATFORMS": "cpu"}
        if cache is not None:
            settings |= {
                "JAX_COMPILATION_CACHE_DIR": str(cache), "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
                "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
            }  # fmt: skip
        self._process = subprocess.Popen(
            [sys.executable, "-m", "attacks.nursery"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=os.environ | settings,
        )  # fmt: skip

    def run(self, *commands: dict[str, Any]) -> list[dict[str, Any]]:
        """Each with its `arguments`, and as it may be: `write` (dies there), `torn`, `seconds` (is
        killed after so much processor time), `host`, `blind` (sees no locks), `folder` (where it
        runs).

        They come back with `code`, what they `said`, and the `writes` and `seconds` of their
        lives."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(commands) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def close(self) -> None:
        self._process.communicate()


def main() -> None:
    for name in MODULES:
        importlib.import_module(name)
    importlib.import_module("attacks.small").know_the_study()
    figures.training_figure = lambda *_, **__: Figure((1, 1))  # it takes longer than the training
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    for line in sys.stdin:
        children = [Child(command) for command in json.loads(line)]
        answers.write(json.dumps([child.end() for child in children]) + "\n")
        answers.flush()


class Child:
    """One command, from its fork to its end."""

    def __init__(self, command: dict[str, Any]):
        self._said = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed when the child has ended
        self._writes = mmap.mmap(-1, 8)  # shared with the child
        self._pid = os.fork()
        if self._pid == 0:
            _live(command, self._said, self._writes)
        self._is_over = threading.Event()
        self._killer = None
        if "seconds" in command:
            self._killer = threading.Thread(target=self._kill, args=(command["seconds"],))
            self._killer.start()

    def _kill(self, seconds: float) -> None:
        """A moment of processor time, which means the same on a busy machine."""
        clock = (~self._pid << 3) | 2  # of that process and all its threads (Linux)
        while not self._is_over.wait(0.002):
            if time.clock_gettime(clock) >= seconds:
                # Not waited for yet, so the number is still its own
                os.kill(self._pid, signal.SIGKILL)
                return

    def end(self) -> dict[str, Any]:
        os.waitid(os.P_PID, self._pid, os.WEXITED | os.WNOWAIT)
        self._is_over.set()
        if self._killer is not None:
            self._killer.join()  # only now is the number given back
        _, status, used = os.wait4(self._pid, 0)
        self._said.seek(0)
        text = self._said.read()
        self._said.close()
        return {
            "code": os.waitstatus_to_exitcode(status), "said": text, "seconds": used.ru_utime + used.ru_stime,
            "writes": int.from_bytes(self._writes[:], "little"),
        }  # fmt: skip


def _live(command: dict[str, Any], said: Any, writes: mmap.mmap) -> None:
    code = 99
    try:
        os.dup2(os.open(os.devnull, os.O_RDWR), 1)
        os.dup2(said.fileno(), 2)
        os.chdir(command.get("folder", "."))
        if "host" in command:
            socket.gethostname = lambda: command["host"]
        from canary.cli.main import main as canary
        from canary.runs import lock

        if command.get("blind"):
            lock.fcntl = None  # type: ignore[assignment]
        with Mortal(command.get("write", 0), torn=command.get("torn", False), real=True) as life:
            code = canary(command["arguments"])
        writes[:] = life.writes.to_bytes(8, "little")
        sys.stderr.flush()
    finally:
        os._exit(code)


if __name__ == "__main__":
    main()
