"""One compilation cache for a whole test session: the programs that several tests share are compiled once."""

import os
import shutil
import tempfile

import pytest

_CACHE = tempfile.mkdtemp(prefix="canary-test-compiled-")
os.environ["JAX_COMPILATION_CACHE_DIR"] = _CACHE  # before JAX is imported; subprocesses inherit it
os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0.3"


def pytest_unconfigure(config: pytest.Config) -> None:
    del config
    shutil.rmtree(_CACHE, ignore_errors=True)
