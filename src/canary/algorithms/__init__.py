"""The algorithms by name: the settings of each, and the function that makes it for a task."""

from collections.abc import Callable
from typing import Any, NamedTuple

from canary.algorithms.base import Algorithm, Task
from canary.algorithms.canary import CanaryConfig, make_canary
from canary.algorithms.cpo import CPOConfig, make_cpo
from canary.algorithms.cppo import CPPOConfig, make_cppo
from canary.algorithms.cvar_cpo import CVaRCPOConfig, make_cvar_cpo
from canary.algorithms.ppo import PPOConfig, make_ppo


class Entry(NamedTuple):
    config: type
    make: Callable[[Any, Task], Algorithm]


ALGORITHMS = {
    "canary": Entry(CanaryConfig, make_canary),
    "ppo": Entry(PPOConfig, make_ppo),
    "cpo": Entry(CPOConfig, make_cpo),
    "cppo": Entry(CPPOConfig, make_cppo),
    "cvar-cpo": Entry(CVaRCPOConfig, make_cvar_cpo),
}
