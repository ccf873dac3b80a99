"""The algorithms by name: the settings of each, and the function that makes it for a task."""

from collections.abc import Callable
from typing import Any, NamedTuple

from canary.algorithms.base import Algorithm, Task
from canary.algorithms.canary import CanaryConfig, make_canary
from canary.algorithms.cpo import CPOConfig, make_cpo
from canary.algorithms.cppo import CPPOConfig, make_cppo
from canary.algorithms.cvar_cpo import CVaRCPOConfig, make_cvar_cpo
from canary.algorithms.ppo import PPOConfig, make_ppo
from canary.algorithms.ppo_lagrangian import PPOLagrangianConfig, make_ppo_lagrangian
from canary.constraints import Kind


class Entry(NamedTuple):
    config: type
    make: Callable[[Any, Task], Algorithm]
    serves: tuple[Kind, ...]
    """The kinds of constraints it can train under; docs/constraints.md says how it serves each."""


# CVaR_eps(C) <= limit implies P(C > limit) <= eps, so methods for the tail mean serve a chance
# constraint as well, on the safe side. PPO ignores every constraint alike.
ALGORITHMS = {
    "canary": Entry(CanaryConfig, make_canary, ("chance",)),
    "ppo": Entry(PPOConfig, make_ppo, ("chance", "mean", "cvar")),
    "cpo": Entry(CPOConfig, make_cpo, ("chance", "mean")),
    "cppo": Entry(CPPOConfig, make_cppo, ("chance", "cvar")),
    "cvar-cpo": Entry(CVaRCPOConfig, make_cvar_cpo, ("chance", "cvar")),
    "ppo-lagrangian": Entry(PPOLagrangianConfig, make_ppo_lagrangian, ("chance", "mean", "cvar")),
}
