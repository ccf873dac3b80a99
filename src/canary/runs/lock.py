"""Who may train a run: one process at a time, on this machine and on all others that see the
directory.

On one machine the kernel keeps the lock (`flock` on RUN/.lock) and gives it back when the process
ends, however it ends. Other machines may not see that lock, so its file is a lease too: it names
its holder, who touches it every few seconds. A lease that was not touched for a minute has run out,
and the run may be taken over. Ages are differences of times of one file system, so clocks that
disagree do no harm.

A holder that was overruled (`force`) finds another name in the file before its next write, and
stops.
"""

import contextlib
import json
import os
import secrets
import socket
import threading
import time
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from canary.errors import CanaryError
from canary.runs.files import NO_FOLLOW, cannot_write, fcntl

NAME = ".lock"
LEASE_SECONDS = 60.0
RENEW_SECONDS = 10.0
PATIENCE_SECONDS = 1.0  # whoever only looks holds the lock for an instant


@dataclass(frozen=True)
class Holder:
    """Who holds a run."""

    pid: int
    host: str
    since: str
    age: float
    """Seconds since its last sign of life."""

    def __str__(self) -> str:
        where = "" if self.host == socket.gethostname() else f" on {self.host}"
        heard = (
            f"{self.age:.0f} s ago"
            if self.age > -RENEW_SECONDS
            else "after now: a clock was set back"
        )
        return f"process {self.pid}{where}, since {self.since} (last sign of life {heard})"


class RunLock:
    """The right to write into a run, held until `release`; `check` says whether it is still
    ours."""

    def __init__(self, run: Path, descriptor: int, token: str):
        self._run, self._descriptor, self._token = run, descriptor, token
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._renew, name="canary-lease", daemon=True)
        self._thread.start()

    def check(self) -> None:
        """Raise a sentence if somebody has taken the run over."""
        found = _read(self._run / NAME)
        if found.get("token") != self._token:
            who = _holder(found, 0.0)
            raise CanaryError(
                f"{self._run} was taken over by {who or 'another process'}; this process has "
                "stopped, and wrote nothing after that."
            )

    def release(self) -> None:
        self._stop.set()
        self._thread.join()
        with contextlib.suppress(OSError):
            if _read(self._run / NAME).get("token") == self._token:
                (self._run / NAME).unlink()
        os.close(self._descriptor)

    def __enter__(self) -> "RunLock":
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def _renew(self) -> None:
        while not self._stop.wait(RENEW_SECONDS):
            with contextlib.suppress(OSError):
                os.utime(self._descriptor)


def acquire(run: Path, *, force: bool = False) -> RunLock:
    """The lock of a run, or a sentence that says who has it.

    `force` overrules a holder on another machine, of whom nobody here can tell whether it is alive.
    A living process of this machine is never overruled.
    """
    path = run / NAME
    descriptor = _open_locked(path, force)
    try:
        found = _read(path)
        holder = _holder(found, _age(path))
        # A process of this machine would have its lock, if there are locks.
        unseen = holder is not None and (holder.host != socket.gethostname() or fcntl is None)
        if holder is not None and unseen and holder.age < LEASE_SECONDS and not force:
            raise _busy(run, holder)
        token = secrets.token_hex(16)
        since = datetime.now().astimezone().isoformat(timespec="seconds")
        record = {"token": token, "pid": os.getpid(), "host": socket.gethostname(), "since": since}
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, json.dumps(record).encode(), 0)
        os.fsync(descriptor)
        return RunLock(run, descriptor, token)
    except OSError as error:
        os.close(descriptor)
        raise cannot_write(path, error) from error
    except BaseException:
        os.close(descriptor)
        raise


def holder(run: Path) -> Holder | None:
    """Who holds a run now; None if nobody does, or whoever did has not been heard of for a
    while."""
    path = run / NAME
    try:
        descriptor = os.open(path, os.O_RDONLY | NO_FOLLOW | getattr(os, "O_NONBLOCK", 0))
    except OSError:
        return None
    try:
        found = _holder(_read(path), _age(path))
        if fcntl is not None:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except OSError:
                return found or Holder(0, "this machine", "an unknown time", 0.0)
        is_elsewhere = found is not None and (found.host != socket.gethostname() or fcntl is None)
        return found if found is not None and is_elsewhere and found.age < LEASE_SECONDS else None
    finally:
        os.close(descriptor)


def _open_locked(path: Path, force: bool) -> int:
    """The lock file, locked; a file that was put in its place meanwhile counts as another one."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            descriptor = os.open(
                path, os.O_RDWR | os.O_CREAT | NO_FOLLOW | getattr(os, "O_NONBLOCK", 0), 0o666
            )
        except OSError as error:
            raise cannot_write(path, error) from error
        try:
            if fcntl is not None:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(descriptor), os.lstat(path)):
                return descriptor
        except FileNotFoundError:  # released, and removed, since we opened it
            pass
        except OSError:
            if time.monotonic() > deadline:
                os.close(descriptor)
                _overrule(path, force)
                continue
        os.close(descriptor)
        time.sleep(0.02)


def _overrule(path: Path, force: bool) -> None:
    """Take the file away from a holder on another machine, if that is wished; else say who it
    is."""
    found = _holder(_read(path), _age(path))
    if not force or found is None or found.host == socket.gethostname():
        raise _busy(path.parent, found)
    path.unlink(missing_ok=True)


def _busy(run: Path, found: Holder | None) -> CanaryError:
    start = f"{run} is being trained by {found or 'another process'}"
    if found is not None and found.host != socket.gethostname():
        left = max(1, round(LEASE_SECONDS - found.age))
        if found.age <= -RENEW_SECONDS:  # a living one would have touched its claim again since
            return CanaryError(f"{start}; if that one is dead, --force takes the run over.")
        return CanaryError(
            f"{start}; if that one is dead, its claim runs out in {left} s, or --force takes the "
            "run over now."
        )
    return CanaryError(f"{start}; wait for it or stop it first.")


def _read(path: Path) -> dict[str, Any]:
    """What the file says; nothing if it says nothing that can be understood."""
    with contextlib.suppress(OSError, ValueError, RecursionError):
        descriptor = os.open(path, os.O_RDONLY | NO_FOLLOW | getattr(os, "O_NONBLOCK", 0))
        try:
            value = json.loads(os.read(descriptor, 4096))
        finally:
            os.close(descriptor)
        if isinstance(value, dict):
            return value
    return {}


def _holder(found: dict[str, Any], age: float) -> Holder | None:
    try:
        return Holder(int(found["pid"]), str(found["host"])[:100], str(found["since"])[:40], age)
    except (KeyError, TypeError, ValueError, OverflowError):
        return None


def _age(path: Path) -> float:
    """Seconds since the file was touched, by the clock of the file system it lies on; negative if
    that was set back."""
    probe = path.with_name(f".probe.{secrets.token_hex(8)}.tmp")
    try:
        touched = os.lstat(path).st_mtime
        try:
            os.close(os.open(probe, os.O_WRONLY | os.O_CREAT | os.O_EXCL | NO_FOLLOW, 0o600))
            now = os.lstat(probe).st_mtime
        finally:
            with contextlib.suppress(OSError):
                probe.unlink()
    except OSError:
        with contextlib.suppress(OSError):  # a directory that cannot be written to
            return max(0.0, time.time() - os.lstat(path).st_mtime)
        return 0.0
    return now - touched
