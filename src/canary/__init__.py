"""Reinforcement learning under a hard tail-risk limit: train, measure and certify
P(episode cost > limit) <= epsilon.

The names below are loaded at their first use: `import canary` does not import JAX.
"""
# ruff: noqa: F401

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from canary.algorithms import ALGORITHMS
    from canary.api import Run, certify, compare, evaluate, export, load, make_train, train
    from canary.constraints import Chance, CVaR, Mean
    from canary.environments import ENVIRONMENTS
    from canary.environments.protocol import Continuous, Discrete, Environment, EnvironmentState
    from canary.environments.to_gymnasium import to_gymnasium
    from canary.errors import CanaryError
    from canary.watching import Update

    __version__: str

_NAMES = {
    "canary.algorithms": "ALGORITHMS",
    "canary.api": "Run certify compare evaluate export load make_train train",
    "canary.constraints": "CVaR Chance Mean",
    "canary.environments": "ENVIRONMENTS",
    "canary.environments.protocol": "Continuous Discrete Environment EnvironmentState",
    "canary.environments.to_gymnasium": "to_gymnasium",
    "canary.errors": "CanaryError",
    "canary.watching": "Update",
}
_HOMES = {name: home for home, names in _NAMES.items() for name in names.split()}
__all__ = ["__version__", *_HOMES]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import PackageNotFoundError, version

        try:
            return version("canary-rl")
        except PackageNotFoundError:  # on the path, but not installed
            return "0+unknown"
    if name not in _HOMES:
        raise AttributeError(f"module 'canary' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
