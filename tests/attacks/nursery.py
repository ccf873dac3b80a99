"""Real processes that start in a moment: a nursery has imported canary and forks a child for every command.

JAX is imported there but not started, so a child starts it as any process does. `python -m attacks.nursery` reads lines of
JSON, a list of commands each, runs those of a line at once, and answers with a list of how they ended.
"""

import importlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

from attacks.death import Mortal

TESTS = Path(__file__).resolve().parents[1]
MODULES = (
    "canary.api", "canary.certification.run", "canary.export.run", "canary.rendering.run", "canary.reporting.figures",
    "canary.studies.run", "attacks.small",
)  # fmt: skip


class Nursery:
    """The other end: commands go in, and how they ended comes out."""

    def __init__(self, cache: Path | None = None):
        path = os.pathsep.join([str(TESTS), str(TESTS.parent / "src")])
        settings = {"PYTHONPATH": path, "JAX_PLATFORMS": "cpu"}
        settings |= {} if cache is None else {"JAX_COMPILATION_CACHE_DIR": str(cache)}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "attacks.nursery"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=os.environ | settings,
        )  # fmt: skip

    def run(self, *commands: dict[str, Any]) -> list[dict[str, Any]]:
        """Each with its `arguments`, and as it may be: `write` (dies there), `torn`, `seconds` (is killed then), `host`,
        `blind` (sees no locks)."""
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
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    for line in sys.stdin:
        children = [_start(command) for command in json.loads(line)]
        answers.write(json.dumps([_end(*child) for child in children]) + "\n")
        answers.flush()


def _start(command: dict[str, Any]) -> tuple[int, Any, threading.Timer | None]:
    said = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed when the child has ended
    pid = os.fork()
    if pid == 0:
        _live(command, said)
    if "seconds" not in command:
        return pid, said, None
    timer = threading.Timer(
        command["seconds"], os.kill, (pid, 9)
    )  # not waited for yet, so the number is still its own
    timer.start()
    return pid, said, timer


def _live(command: dict[str, Any], said: Any) -> None:
    code = 99
    try:
        os.dup2(os.open(os.devnull, os.O_RDWR), 1)
        os.dup2(said.fileno(), 2)
        if "host" in command:
            socket.gethostname = lambda: command["host"]
        from canary.cli.main import main as canary
        from canary.runs import lock

        if command.get("blind"):
            lock.fcntl = None  # type: ignore[assignment]
        with Mortal(command.get("write", 0), torn=command.get("torn", False), real=True):
            code = canary(command["arguments"])
        sys.stderr.flush()
    finally:
        os._exit(code)


def _end(pid: int, said: Any, timer: threading.Timer | None) -> dict[str, Any]:
    facts = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    assert facts is not None
    if timer is not None:
        timer.cancel()
        timer.join()  # only now is the number given back
    _, status = os.waitpid(pid, 0)
    said.seek(0)
    text = said.read()
    said.close()
    return {"code": os.waitstatus_to_exitcode(status), "said": text}


if __name__ == "__main__":
    main()
