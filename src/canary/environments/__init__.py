"""The environments by name, and the adapters to those of other packages.

A new environment is a file with a frozen dataclass, whose fields are its settings, and a line here.
Its module is imported at its first use.
"""

import importlib
from collections.abc import Iterator, Mapping
from typing import Any

_LINES = {
    "EcoAnt": ("eco_ant", "run forward on four legs; the energy of each step is its cost"),
    "IcyLake": ("icy_lake", "cross a slippery lake to the goal; every step that ends on ice costs 1"),
    "PointGoal": ("point_goal", "drive a point robot from goal to goal; every step inside a hazard costs 1"),
    "PointGoal2500": ("point_goal", "PointGoal with the horizon that the paper's returns suggest, 2500 steps"),
}  # fmt: skip

DESCRIPTIONS = {name: line for name, (_, line) in _LINES.items()}


class _Environments(Mapping[str, Any]):
    """Name -> class."""

    def __getitem__(self, name: str) -> Any:
        return getattr(importlib.import_module(f"{__name__}.{_LINES[name][0]}"), name)

    def __iter__(self) -> Iterator[str]:
        return iter(_LINES)

    def __len__(self) -> int:
        return len(_LINES)


ENVIRONMENTS = _Environments()

_ADAPTERS = {
    "from_gymnasium": "gymnasium_environment",
    "from_gymnax": "jax_adapters",
    "from_brax": "jax_adapters",
}


def __getattr__(name: str) -> Any:
    if name not in _ADAPTERS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_ADAPTERS[name]}"), name)
