"""The presets: functions from a configuration with the defaults of its algorithm to one that fits
its environment.

The defaults of the algorithms are the paper's hyper-parameters. What the paper states by
environment is here, and what the `fast` preset does otherwise. A subclass of an environment is
treated as what it is derived from.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar

from canary.algorithms.canary import CanaryConfig
from canary.algorithms.clipped_update import ClippedConfig
from canary.algorithms.cpo import CPOConfig
from canary.algorithms.cppo import CPPOConfig
from canary.algorithms.cvar_cpo import CVaRCPOConfig
from canary.algorithms.ppo import PPOConfig
from canary.algorithms.ppo_lagrangian import PPOLagrangianConfig
from canary.config.run_config import RunConfig
from canary.environments.eco_ant import EcoAnt
from canary.environments.icy_lake import IcyLake
from canary.environments.point_goal import PointGoal
from canary.environments.protocol import Discrete, Environment, largest_step_cost

TrustRegionMethod = CanaryConfig | CPOConfig | CVaRCPOConfig
Value = TypeVar("Value")


class Batches(NamedTuple):
    """How much is trained on which batches."""

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
    PointGoal: Batches(environments=80, rollout_length=125, total_steps=4_000_000),
    IcyLake: Batches(environments=20, rollout_length=200, total_steps=600_000),
}

# The paper's table of baseline hyper-parameters (tab:baseline-hyperparams), by algorithm and
# environment. CPPO's ratio clip and minibatch size are not in it: PPO's are used; nor is what its
# advantage is standardised over: as in the authors' public code for discrete and for continuous
# actions. Elsewhere, and for the trust-region methods, the algorithms' defaults hold.
PAPER_BASELINES: dict[str, dict[type, Any]] = {
    "ppo": {
        EcoAnt: PPOConfig(clipped=ClippedConfig(epochs=4, minibatch_size=500, entropy=1e-5)),
        PointGoal: PPOConfig(clipped=ClippedConfig(epochs=4, minibatch_size=500, entropy=0.0075)),
        IcyLake: PPOConfig(clipped=ClippedConfig(epochs=4, minibatch_size=40, entropy=0.01)),
    },
    "cppo": {
        EcoAnt: CPPOConfig(
            multiplier_init=50.0, multiplier_step=0.03, proportional_gain=600.0, cvar_clip_ratio=1000.0,
            clipped=ClippedConfig(epochs=10, minibatch_size=500, entropy=0.0075, standardise="batch"),
        ),
        PointGoal: CPPOConfig(
            multiplier_init=50.0, multiplier_step=0.01, proportional_gain=60.0, cvar_clip_ratio=300.0,
            clipped=ClippedConfig(epochs=4, minibatch_size=500, entropy=0.0075, standardise="batch"),
        ),
        IcyLake: CPPOConfig(
            multiplier_init=1.0, multiplier_step=0.03, proportional_gain=15.0, cvar_clip_ratio=300.0,
            clipped=ClippedConfig(epochs=4, minibatch_size=40, entropy=0.01, standardise="minibatch"),
        ),
    },
}  # fmt: skip


def paper(config: RunConfig) -> RunConfig:
    """The paper's equations and hyper-parameters and, where it states them, its batches and
    steps."""
    batches = of_kind(config.environment, PAPER_BATCHES)
    training = config.training
    if batches is not None:
        training = replace(training, **batches._asdict())
        if is_discrete(config.environment):
            training = replace(training, merge_capacity=512)
    return replace(config, algorithm=_baseline(config), training=training)


def fast(config: RunConfig) -> RunConfig:
    """The best update that we know, at the speed of a CPU.

    docs/algorithms/canary.md says what each setting does, docs/lab-notebook.md how it was found.
    Small networks have fewer directions to be wrong in and are ten times cheaper; the rest takes
    noise out of the constraint or keeps noise from doing harm.
    """
    discrete, settings = is_discrete(config.environment), _baseline(config)
    settings = replace(settings, estimation=replace(settings.estimation, hidden=(64, 64)))
    if isinstance(settings, TrustRegionMethod):
        settings = _short_episodes(settings) if discrete else _long_episodes(settings)
    if isinstance(settings, TrustRegionMethod) and isinstance(config.environment, EcoAnt):
        settings = _falling_ant(settings)
    if isinstance(settings, CanaryConfig):
        settings = replace(settings, restoration="second-moment", dead_zone=_dead_zone(config))
    if isinstance(settings, PPOConfig) and isinstance(config.environment, IcyLake):
        # As many gradient steps as on the paper's batch.
        settings = replace(settings, clipped=replace(settings.clipped, minibatch_size=160))
    if isinstance(settings, PPOLagrangianConfig):
        # One batch says little about a tail.
        settings = replace(settings, estimation=replace(settings.estimation, window_batches=5))
        if isinstance(config.environment, IcyLake):
            clipped = replace(settings.clipped, minibatch_size=40, entropy=0.01, learning_rate=1e-3)
            settings = replace(settings, clipped=clipped)
    batches = of_kind(config.environment, FAST_BATCHES)
    if batches is None:
        training = replace(config.training, environments=20 if discrete else 80)
    else:
        training = replace(config.training, **batches._asdict())
    if isinstance(config.environment, PointGoal):
        # An episode lasts eight batches, whatever its horizon: what a step did to its cost is seen
        # after as many updates.
        horizon = config.environment.horizon
        training = replace(
            training, rollout_length=max(horizon // 8, 1), total_steps=4000 * horizon
        )
    if isinstance(config.environment, IcyLake):
        if config.algorithm_name in ("cppo", "cvar-cpo", "ppo-lagrangian"):
            # Their critics need more updates than a larger batch leaves.
            training = replace(training, environments=5)
        elif isinstance(settings, TrustRegionMethod) and config.environment.horizon > 100:
            # A reward that lies further away takes more updates to be learnt, on half the batch;
            # the constraint is still estimated from as many episodes.
            training = replace(training, rollout_length=100)
            settings = replace(settings, estimation=replace(settings.estimation, window_batches=10))
    return replace(config, algorithm=settings, training=training)


def _short_episodes(settings: TrustRegionMethod) -> TrustRegionMethod:
    """Episodes of tens of steps and few distinct inputs: short traces, a price on giving up actions
    before the constraint holds, and a way back for a policy that hides from its costs."""
    return replace(
        settings,
        estimation=replace(settings.estimation, window_batches=5, cost_gae_lambda=0.7),
        critic=replace(settings.critic, epochs=4, minibatches=8),
        trust_region=replace(
            settings.trust_region, surrogate_scale="signal", restoration_share=0.98, fisher_states=1000,
            entropy=0.03, exploration=0.1, target_kl=0.02, target_kl_end=0.0002, tolerated_loss=0.4,
        ),
    )  # fmt: skip


def _long_episodes(settings: TrustRegionMethod) -> TrustRegionMethod:
    """Episodes of a thousand steps: long traces, critics that know the time left, and damping
    against the noise of a gradient that is nearly all noise."""
    return replace(
        settings,
        estimation=replace(settings.estimation, window_batches=5, cost_gae_lambda=0.95, target_lambda=0.97),
        critic=replace(settings.critic, epochs=2, minibatches=32, learning_rate=1e-3, time_feature=True),
        trust_region=replace(
            settings.trust_region, surrogate_scale="signal", restoration_share=0.98, fisher_states=2500,
            damping=1.0, target_kl=0.03, target_kl_end=0.001, target_kl_path="geometric",
        ),
    )  # fmt: skip


def _falling_ant(settings: TrustRegionMethod) -> TrustRegionMethod:
    """The ant falls within twenty steps at first: a batch has hundreds of episodes, so more and
    longer steps than elsewhere pay, and to the end of the run, because it learns to walk until
    then."""
    return replace(
        settings,
        critic=replace(settings.critic, epochs=4, minibatches=16),
        trust_region=replace(
            settings.trust_region, target_kl=0.05, target_kl_end=0.01, target_kl_path="linear"
        ),
    )


def _dead_zone(config: RunConfig) -> float:
    """As wide as the episodes allow: a wider one is less conservative, and fewer episodes say
    something about it.

    Where a limit is a few steps' costs, the last of them below the limit must count, or the bound
    is the violation indicator. The rarer a violation may be, the longer the episodes and so the
    fewer of them in a batch, and the fewer steps of a long episode may cost something, the more
    episodes beside the violations must say something.
    """
    if isinstance(config.environment, EcoAnt):
        return 0.5
    unit = (largest_step_cost(config.environment) or 0.0) / config.constraint.limit
    if not is_discrete(config.environment):
        # Share of the steps that may cost the most
        affordable = 1 / (unit * config.environment.horizon) if unit else 1.0
        return round(min(5 * affordable, 0.3), 2)
    rarity = 0.02 / config.constraint.share
    fewer = max(config.environment.horizon / 100, 1)
    counted = max(1.1 * unit, 0.2) * max(rarity, rarity ** (1 / 4)) * math.sqrt(fewer)
    return round(max(1 - counted, 0.0), 2)


def _baseline(config: RunConfig) -> Any:
    """The algorithm's settings as the paper states them for this environment."""
    stated = of_kind(config.environment, PAPER_BASELINES.get(config.algorithm_name, {}))
    return config.algorithm if stated is None else stated


def is_discrete(environment: Environment) -> bool:
    return isinstance(environment.action_space, Discrete)


def of_kind(environment: Environment, table: dict[type, Value]) -> Value | None:
    """The entry for the environment's class or the nearest one that it is derived from."""
    return next((table[kind] for kind in type(environment).__mro__ if kind in table), None)


PRESETS: dict[str, Callable[[RunConfig], RunConfig]] = {"paper": paper, "fast": fast}
