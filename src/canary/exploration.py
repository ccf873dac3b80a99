"""How widely an untrained continuous policy explores.

Random exploration is itself a risk: noise of deviation 1 in eight joints throws EcoAnt over within
twenty steps, and a policy that starts there learns to fall. So a few untrained episodes are played
with each of a few deviations, and the widest one is taken that is not clearly beaten by the next
narrower one: wide exploration learns faster where it does no harm.
"""

import math
from dataclasses import replace
from typing import Any

import jax
import numpy as np

from canary.config.run_config import RunConfig
from canary.environments.protocol import Continuous, Environment, explain_failures
from canary.evaluation import make_player
from canary.networks import make_policy
from canary.numerics.running_statistics import initial_statistics
from canary.rollout import CostAccount

DEVIATIONS = (1.0, math.exp(-1), math.exp(-2))
EPISODES = 16
CLEARLY = 3.0  # standard errors


def with_initial_std(config: RunConfig) -> RunConfig:
    """The configuration with its initial deviation chosen, where that was left open, and the entropy
    bonus in proportion."""
    algorithm, environment = config.algorithm, config.environment
    estimation = algorithm.estimation
    if estimation.initial_std is not None:
        return config
    chosen = 1.0
    if isinstance(environment.action_space, Continuous):
        account = CostAccount(config.constraint.limit, estimation.cost_discount, config.clock)
        chosen = initial_std(environment, account, estimation.hidden)
    parts: dict[str, Any] = {"estimation": replace(estimation, initial_std=chosen)}
    if clipped := getattr(algorithm, "clipped", None):
        # The bonus would soon undo a narrow start.
        parts["clipped"] = replace(clipped, entropy=clipped.entropy * chosen)
    return replace(config, algorithm=replace(algorithm, **parts))


def initial_std(environment: Environment, account: CostAccount, hidden: tuple[int, ...]) -> float:
    """The deviation that training starts with; the same for all seeds."""
    size = environment.observation_size
    statistics = initial_statistics(size) if environment.normalise_observation else None
    play = make_player(environment, account)
    keys = jax.random.split(jax.random.key(0), EPISODES)

    def returns(deviation: float) -> np.ndarray:
        policy = make_policy(
            jax.random.key(1), size + account.size, environment.action_space, hidden, deviation
        )
        with explain_failures(environment):
            return np.asarray(play(policy, statistics, keys).reward)

    chosen, earned = DEVIATIONS[0], returns(DEVIATIONS[0])
    for narrower in DEVIATIONS[1:]:
        candidate = returns(narrower)
        if not clearly_better(candidate, earned):
            break
        chosen, earned = narrower, candidate
    return round(chosen, 3)


def clearly_better(candidate: np.ndarray, other: np.ndarray) -> bool:
    """Whether the mean of one sample exceeds that of another by several standard errors."""
    error = math.sqrt(candidate.var() / len(candidate) + other.var() / len(other))
    return bool(candidate.mean() - other.mean() > CLEARLY * error)
