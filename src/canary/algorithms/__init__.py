"""The methods by name. A method is its settings: a frozen dataclass whose `make(task)` gives the
`Algorithm`, and whose `serves` names the kinds of constraints that it can train under.

Two engines do the work. Canary, PPO-Lagrangian, CPPO and PPO hand an objective to the clipped one
(`clipped.py`); Canary as published (Cantelli-CPO), CPO and CVaR-CPO hand a constraint to the trust
region (`trust_region.py`).
"""

from canary.algorithms.canary import CanaryConfig
from canary.algorithms.cantelli_cpo import CantelliCPOConfig
from canary.algorithms.cpo import CPOConfig
from canary.algorithms.cppo import CPPOConfig
from canary.algorithms.cvar_cpo import CVaRCPOConfig
from canary.algorithms.ppo import PPOConfig
from canary.algorithms.ppo_lagrangian import PPOLagrangianConfig

ALGORITHMS: dict[str, type] = {
    "canary": CanaryConfig,
    "ppo": PPOConfig,
    "cpo": CPOConfig,
    "cppo": CPPOConfig,
    "cvar-cpo": CVaRCPOConfig,
    "ppo-lagrangian": PPOLagrangianConfig,
    "cantelli-cpo": CantelliCPOConfig,
}
