"""How all tests run: programs compile quickly and are kept; shapes of arrays are checked."""

import gc
import os
import time
from pathlib import Path

import jaxtyping
import numpy as np
import pytest

CACHE = Path(__file__).parents[1] / ".cache" / "compiled"
KEPT_DAYS = 14
# Before JAX is imported; workers and subprocesses inherit it.
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(CACHE))
# Whose code is trusted: not the user's own list
os.environ["XDG_CONFIG_HOME"] = str(CACHE.parent / "config")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
# A test runs a program a few times only. Without these it takes a fifth of the time to compile.
os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")
os.environ.setdefault("XLA_FLAGS", "--xla_cpu_use_fusion_emitters=false")

# The rooms of arrays: annotations are checked at every call. Others answer with sentences.
MATHEMATICS = ("types", "numerics", "networks", "rollout", "algorithms", "training", "evaluation")
# JAX takes numpy's arrays for its own, and so do tests
jaxtyping.Array = jaxtyping.Array | np.ndarray
jaxtyping.install_import_hook([f"canary.{room}" for room in MATHEMATICS], "beartype.beartype")


# The longest files come first (Makefile: --no-loadscope-reorder): both workers end together.
LONGEST = (
    "test_documents", "test_seeds", "test_examples", "test_probes", "test_host_runs", "test_contract",
    "test_cli", "test_digests", "test_gymnasium", "test_trust_region_step", "test_cantelli_cpo",
    "test_run", "test_training", "test_runner", "test_shaped", "test_trust_region", "test_canary",
    "test_cpo", "test_api", "test_cvar_cpo", "test_clipped", "test_longer",
    "test_optimal", "test_relative_variance", "test_committed", "test_point_goal", "test_eco_ant",
    "test_engines", "test_formats", "test_reference",
)  # fmt: skip


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    place = {name: number for number, name in enumerate(LONGEST)}
    items.sort(key=lambda item: place.get(item.path.stem, len(place)))


def pytest_collection_finish() -> None:
    """Tracing makes many objects that die at once. Looking for cycles among all that is imported
    each time takes a tenth of it."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(200_000, 20, 50)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Forget programs that are old; reading one does not change its times."""
    if hasattr(session.config, "workerinput"):
        return
    oldest = time.time() - KEPT_DAYS * 86400
    for path in CACHE.glob("*"):
        if path.stat().st_mtime < oldest:
            path.unlink(missing_ok=True)
