"""Reinforcement learning under a hard tail-risk limit: P(episode cost > limit) <= epsilon, trained, measured and certified.

The names below are loaded when they are first used: `import canary` is light, JAX takes its second only where
needed.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from canary.algorithms import ALGORITHMS
    from canary.api import Run, certify, evaluate, load, train
    from canary.environments import ENVIRONMENTS
    from canary.errors import CanaryError
    from canary.types import Chance

    __version__: str

__all__ = [
    "ALGORITHMS",
    "ENVIRONMENTS",
    "CanaryError",
    "Chance",
    "Run",
    "__version__",
    "certify",
    "evaluate",
    "load",
    "train",
]

_HOMES = {
    "ALGORITHMS": "canary.algorithms",
    "CanaryError": "canary.errors",
    "Chance": "canary.types",
    "ENVIRONMENTS": "canary.environments",
    "Run": "canary.api",
    "certify": "canary.api",
    "evaluate": "canary.api",
    "load": "canary.api",
    "train": "canary.api",
}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return _version()
    if name not in _HOMES:
        raise AttributeError(f"module 'canary' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("canary-rl")
    except PackageNotFoundError:  # the source is on the path but was never installed
        return "0+unknown"
