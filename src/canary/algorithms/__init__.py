"""The methods by name. A method is its settings: a frozen dataclass whose `make(task)` returns the
`Algorithm` and whose `serves` lists the kinds of constraint that it supports.

There are two engines. Canary, PPO-Lagrangian, CPPO and PPO give an objective to the clipped engine
(`clipped.py`); Canary as published (Cantelli-CPO), CPO and CVaR-CPO give a constraint to the trust
region (`trust_region.py`). A module is imported when its method is looked up.
"""

import importlib
from collections.abc import Iterator, Mapping

_LINES = {
    "canary": ("canary:CanaryConfig", "Cantelli's bound on the shaped cost, with a price in clipped updates"),
    "ppo": ("clipped:PPOConfig", "proximal policy optimization, which knows no constraint"),
    "cpo": ("cpo:CPOConfig", "constrained policy optimization on the violation indicator"),
    "cppo": ("cppo:CPPOConfig", "clipped updates with a penalty on the conditional value at risk"),
    "cvar-cpo": ("cvar_cpo:CVaRCPOConfig", "constrained policy optimization on the conditional value at risk"),
    "ppo-lagrangian": (
        "ppo_lagrangian:PPOLagrangianConfig", "clipped updates with a price on the constraint, of any kind",
    ),
    "cantelli-cpo": ("cantelli_cpo:CantelliCPOConfig", "Canary as published: the Cantelli bound in a trust region"),
}  # fmt: skip

DESCRIPTIONS = {name: line for name, (_, line) in sorted(_LINES.items())}


class _Methods(Mapping[str, type]):
    """Name -> settings."""

    def __getitem__(self, name: str) -> type:
        module, _, kind = _LINES[name][0].partition(":")
        return getattr(importlib.import_module(f"{__name__}.{module}"), kind)

    def __iter__(self) -> Iterator[str]:
        return iter(_LINES)

    def __len__(self) -> int:
        return len(_LINES)


ALGORITHMS = _Methods()
