"""PPO: Proximal Policy Optimization (Schulman et al., 2017), blind to the constraint.

    maximise J(pi)

The policy follows the reward advantage; costs are only logged. It shows what the reward alone asks
for.
"""

from dataclasses import dataclass, field
from typing import ClassVar

from jaxtyping import PyTree

from canary.algorithms.base import Algorithm, EstimationConfig, Task
from canary.algorithms.clipped import (
    Batch,
    ClippedConfig,
    ClippedMethod,
    Objective,
    clipped_algorithm,
)
from canary.constraints import Kind
from canary.types import Terms
from canary.values import Settings


@dataclass(frozen=True, kw_only=True)
class PPOConfig(Settings):
    """Settings of PPO; those the paper states per environment are in `config/presets.py`."""

    estimation: EstimationConfig = field(default_factory=EstimationConfig)
    clipped: ClippedConfig = field(default_factory=ClippedConfig)

    serves: ClassVar[tuple[Kind, ...]] = ("chance", "mean", "cvar")
    serves_several: ClassVar[bool] = True

    def make(self, task: Task) -> Algorithm:
        method = ClippedMethod(
            critics=0,
            observe_spent=bool(self.estimation.observe_spent),
            memory=None,
            standardise="minibatch",
            objective=reward_objective,
        )
        return clipped_algorithm(method, task, self.estimation, self.clipped)


def reward_objective(batch: Batch, terms: Terms, memory: PyTree) -> Objective:
    """The reward, and nothing but the reward."""
    advantage, target = batch.reward
    return Objective(advantage, target[None], memory, {})
