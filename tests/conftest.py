"""One compilation cache for all workers and all sessions: a program is compiled once, and again when it changes."""

import os
import time
from pathlib import Path

import pytest

CACHE = Path(__file__).parents[1] / ".cache" / "compiled"
KEPT_DAYS = 14
# Before JAX is imported; workers and subprocesses inherit it.
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(CACHE))
os.environ["XDG_CONFIG_HOME"] = str(CACHE.parent / "config")  # whose code is trusted: not the user's own list
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.1")


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Forget programs that no session has used for a while (reading one does not change its times, so by their age)."""
    if hasattr(session.config, "workerinput"):
        return
    oldest = time.time() - KEPT_DAYS * 86400
    for path in CACHE.glob("*"):
        if path.stat().st_mtime < oldest:
            path.unlink(missing_ok=True)
