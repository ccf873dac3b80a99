"""The presets: functions from a configuration with the defaults of its algorithm to one that fits
its environment.

The defaults of the algorithms are the paper's hyper-parameters. This file holds those that the
paper states per environment, and the `fast` preset. A subclass of an environment gets the settings
of its base class.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar

from canary.algorithms.canary import CanaryConfig
from canary.algorithms.cantelli_cpo import CantelliCPOConfig
from canary.algorithms.clipped import ClippedConfig, PPOConfig
from canary.algorithms.cppo import CPPOConfig
from canary.algorithms.ppo_lagrangian import PPOLagrangianConfig
from canary.config import PRESETS as NAMES
from canary.config.run_config import RunConfig
from canary.constraints import parts_of
from canary.environments.eco_ant import EcoAnt
from canary.environments.icy_lake import IcyLake
from canary.environments.point_goal import PointGoal
from canary.environments.protocol import Discrete, Environment

Value = TypeVar("Value")


class Batches(NamedTuple):
    """The size of a batch and the length of training."""

    environments: int
    rollout_length: int
    total_steps: int


# The paper's table of environment-level settings (tab:env-settings).
PAPER_BATCHES: dict[type, Batches] = {
    EcoAnt: Batches(environments=20, rollout_length=100, total_steps=10_000_000),
    PointGoal: Batches(environments=20, rollout_length=125, total_steps=2_000_000),
    IcyLake: Batches(environments=5, rollout_length=200, total_steps=1_000_000),
}

FAST_BATCHES: dict[type, Batches] = {
    EcoAnt: Batches(environments=100, rollout_length=50, total_steps=4_000_000),
    IcyLake: Batches(environments=5, rollout_length=200, total_steps=600_000),
}

# The paper's table of baseline hyper-parameters (tab:baseline-hyperparams), by algorithm and
# environment. The table has no ratio clip and minibatch size for CPPO: PPO's are used. It does not
# say over which samples CPPO's advantage is standardised: the authors' public code decides, for
# discrete and for continuous actions. Everything else has the algorithms' defaults.
PAPER_BASELINES: dict[str, dict[type, Any]] = {
    "ppo": {
        EcoAnt: PPOConfig(clipped=ClippedConfig(epochs=4, minibatch_size=500, entropy=1e-5)),
        PointGoal: PPOConfig(clipped=ClippedConfig(epochs=4, minibatch_size=500, entropy=0.0075)),
        IcyLake: PPOConfig(clipped=ClippedConfig(epochs=4, minibatch_size=40, entropy=0.01)),
    },
    "cppo": {
        EcoAnt: CPPOConfig(
            multiplier_init=50.0, multiplier_step=0.03, proportional_gain=600.0, cvar_clip_ratio=1000.0,
            clipped=ClippedConfig(epochs=10, minibatch_size=500, entropy=0.0075),
        ),
        PointGoal: CPPOConfig(
            multiplier_init=50.0, multiplier_step=0.01, proportional_gain=60.0, cvar_clip_ratio=300.0,
            clipped=ClippedConfig(epochs=4, minibatch_size=500, entropy=0.0075),
        ),
        IcyLake: CPPOConfig(
            multiplier_init=1.0, multiplier_step=0.03, proportional_gain=15.0, cvar_clip_ratio=300.0,
            clipped=ClippedConfig(epochs=4, minibatch_size=40, entropy=0.01), standardise="minibatch",
        ),
    },
}  # fmt: skip


def paper(config: RunConfig) -> RunConfig:
    """The paper's equations and hyper-parameters, and its batches and steps if it states them."""
    if type(config.algorithm) is CanaryConfig:
        config = replace(config, algorithm=CantelliCPOConfig())
    batches = of_kind(config.environment, PAPER_BATCHES)
    training = config.training
    if batches is not None:
        training = replace(training, **batches._asdict())
        if is_discrete(config.environment):
            training = replace(training, merge_capacity=512)
    return replace(config, algorithm=_baseline(config), training=training)


def authors(config: RunConfig) -> RunConfig:
    """`paper` with the authors' reading of the trust region (docs/readings.md)."""
    config = paper(config)
    region = getattr(config.algorithm, "trust_region", None)
    if region is None:
        return config
    region = replace(region, reading="authors")
    return replace(config, algorithm=replace(config.algorithm, trust_region=region))


def fast(config: RunConfig) -> RunConfig:
    """Our best settings, chosen on a CPU (docs/algorithms/canary.md says why).

    All environments follow the same rule, except that some of ours have their own batches and steps.
    """
    discrete, settings = is_discrete(config.environment), _baseline(config)
    estimation = replace(settings.estimation, hidden=(64, 64), initial_std=None)
    if isinstance(settings, CanaryConfig | PPOLagrangianConfig):
        share = min(part.share for part in parts_of(config.constraint))
        window = math.ceil(2 / share)  # so that two violations are expected
        settings = replace(
            settings,
            estimation=replace(estimation, window=max(window, 20), clock=True, budget_layer=True),
            clipped=ClippedConfig(epochs=2, minibatch_size=40, learning_rate=1e-3, entropy=0.01)
            if discrete
            else ClippedConfig(minibatch_size=500, entropy=0.0075),
        )
    else:
        settings = replace(settings, estimation=estimation)
    if isinstance(settings, CanaryConfig) and discrete:
        # Effects are near in time, and a shorter trace has less noise.
        settings = replace(settings, estimation=replace(settings.estimation, gae_lambda=0.9))
    training, horizon = config.training, config.environment.horizon
    batches = of_kind(config.environment, FAST_BATCHES)
    if batches is not None:
        training = replace(training, **batches._asdict())
    elif not discrete:
        # A batch holds the steps of four whole episodes, for enough samples of the cost.
        environments = max(math.ceil(4 * horizon / 125), 8)
        training = replace(training, environments=environments, rollout_length=125)
    if isinstance(config.environment, PointGoal):
        training = replace(training, total_steps=4000 * horizon)
    return replace(config, algorithm=settings, training=training)


def _baseline(config: RunConfig) -> Any:
    """The algorithm's settings, as the paper states them for this environment if it does."""
    stated = of_kind(config.environment, PAPER_BASELINES.get(config.algorithm_name, {}))
    return stated if type(stated) is type(config.algorithm) else config.algorithm


def is_discrete(environment: Environment) -> bool:
    return isinstance(environment.action_space, Discrete)


def of_kind(environment: Environment, table: dict[type, Value]) -> Value | None:
    """The entry for the environment's class or its nearest base class."""
    return next((table[kind] for kind in type(environment).__mro__ if kind in table), None)


PRESETS: dict[str, Callable[[RunConfig], RunConfig]] = {name: globals()[name] for name in NAMES}
