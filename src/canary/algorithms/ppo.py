"""PPO: Proximal Policy Optimization (Schulman et al., 2017), blind to the constraint.

    maximise J(pi)

The policy follows the reward advantage; costs are only logged. It shows what the reward alone asks
for.
"""

from dataclasses import dataclass, field

from jaxtyping import Array, Float, PyTree

from canary.algorithms.base import Algorithm, EstimationConfig, Task
from canary.algorithms.clipped_update import (
    ClippedConfig,
    ClippedMethod,
    Objective,
    clipped_algorithm,
)
from canary.numerics.moments import EpisodeWindow
from canary.types import Rollout, Terms

Steps = Float[Array, "time env"]


@dataclass(frozen=True, kw_only=True)
class PPOConfig:
    """Settings of PPO; those the paper states per environment are in `config/presets.py`."""

    estimation: EstimationConfig = field(default_factory=EstimationConfig)
    clipped: ClippedConfig = field(default_factory=ClippedConfig)


def make_ppo(config: PPOConfig, task: Task) -> Algorithm:
    method = ClippedMethod(
        critics=0,
        observe_spent=bool(config.estimation.observe_spent),
        memory=None,
        objective=reward_objective,
    )
    return clipped_algorithm(method, task, config.estimation, config.clipped)


def reward_objective(
    rollout: Rollout,
    reward: tuple[Steps, Steps],
    values: Float[Array, "critic time env"],
    next_values: Float[Array, "critic time env"],
    window: EpisodeWindow,
    terms: Terms,
    memory: PyTree,
) -> Objective:
    """The reward, and nothing but the reward."""
    del rollout, values, next_values, window, terms
    advantage, target = reward
    return Objective(advantage, target[None], memory, {})
