"""The initial deviation of a continuous policy.

Noise of deviation 1 in eight joints makes EcoAnt fall within twenty steps, and a policy that starts
so learns to fall. Other environments learn faster with wide exploration. So a few untrained
episodes are played with each of three deviations, from wide to narrow, until the next one has no
clearly higher return.
"""

import math
from dataclasses import replace
from typing import Any

import jax
import numpy as np

from canary.config.run_config import RunConfig
from canary.environments.protocol import Continuous
from canary.evaluation import make_player
from canary.networks import make_policy
from canary.numerics.running_statistics import initial_statistics
from canary.rollout import CostAccount

DEVIATIONS = (1.0, math.exp(-1), math.exp(-2))
EPISODES = 16
CLEARLY = 3.0  # standard errors


def initial_std(config: RunConfig) -> float | None:
    """The initial deviation for all seeds; None if the settings give it or actions are discrete."""
    environment, estimation = config.environment, config.algorithm.estimation
    if estimation.initial_std is not None or not isinstance(environment.action_space, Continuous):
        return None
    account = CostAccount(config.constraint.limit, estimation.cost_discount, config.clock)
    size = environment.observation_size
    statistics = initial_statistics(size) if environment.normalise_observation else None
    play = make_player(environment, account)
    keys = jax.random.split(jax.random.key(0), EPISODES)

    def returns(deviation: float) -> np.ndarray:
        inputs, space = size + account.size, environment.action_space
        policy = make_policy(jax.random.key(1), inputs, space, estimation.hidden, deviation)
        return np.asarray(play(policy, statistics, keys).reward)

    chosen, earned = DEVIATIONS[0], returns(DEVIATIONS[0])
    for narrower in DEVIATIONS[1:]:
        candidate = returns(narrower)
        error = math.sqrt(candidate.var() / len(candidate) + earned.var() / len(earned))
        if not candidate.mean() - earned.mean() > CLEARLY * error:
            break
        chosen, earned = narrower, candidate
    return round(chosen, 3)


def with_initial_std(config: RunConfig, chosen: float | None) -> RunConfig:
    """The configuration with the chosen deviation, if any, and a proportional entropy bonus: the
    full bonus would soon widen a narrow start."""
    algorithm = config.algorithm
    if chosen is None:
        return config
    parts: dict[str, Any] = {"estimation": replace(algorithm.estimation, initial_std=chosen)}
    if clipped := getattr(algorithm, "clipped", None):
        parts["clipped"] = replace(clipped, entropy=clipped.entropy * chosen)
    return replace(config, algorithm=replace(algorithm, **parts))
