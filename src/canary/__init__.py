"""Reinforcement learning under a hard tail-risk limit: P(episode cost > limit) <= epsilon, trained,
measured and certified.

The names below are loaded when they are first used: `import canary` is light, JAX takes its second
only where needed.
"""

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from canary.algorithms import ALGORITHMS
    from canary.api import Run, certify, compare, evaluate, export, load, make_train, train
    from canary.constraints import Chance, CVaR, Mean
    from canary.environments import ENVIRONMENTS
    from canary.environments.protocol import Continuous, Discrete, Environment, EnvironmentState
    from canary.environments.to_gymnasium import to_gymnasium
    from canary.errors import CanaryError
    from canary.watching.update import Update

    __version__: str

__all__ = [
    "ALGORITHMS",
    "ENVIRONMENTS",
    "CVaR",
    "CanaryError",
    "Chance",
    "Continuous",
    "Discrete",
    "Environment",
    "EnvironmentState",
    "Mean",
    "Run",
    "Update",
    "__version__",
    "certify",
    "compare",
    "evaluate",
    "export",
    "load",
    "make_train",
    "to_gymnasium",
    "train",
]

_HOMES = {
    "ALGORITHMS": "canary.algorithms",
    "CanaryError": "canary.errors",
    "CVaR": "canary.constraints",
    "Chance": "canary.constraints",
    "Continuous": "canary.environments.protocol",
    "Discrete": "canary.environments.protocol",
    "ENVIRONMENTS": "canary.environments",
    "Environment": "canary.environments.protocol",
    "EnvironmentState": "canary.environments.protocol",
    "Mean": "canary.constraints",
    "Run": "canary.api",
    "Update": "canary.watching.update",
    "certify": "canary.api",
    "compare": "canary.api",
    "evaluate": "canary.api",
    "export": "canary.api",
    "load": "canary.api",
    "make_train": "canary.api",
    "to_gymnasium": "canary.environments.to_gymnasium",
    "train": "canary.api",
}


class _Face(ModuleType):
    """Python sets a room that is imported as an attribute here, and `canary.export`, the room,
    would take the place of `canary.export`, the function."""

    def __setattr__(self, name: str, value: Any) -> None:
        if not (name in _HOMES and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Face


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
