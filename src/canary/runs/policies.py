"""Load the frozen policies of a run from a checkpoint and play fresh episodes with them.

Episode j of seed i has the key fold_in(fold_in(fold_in(key(evaluation seed), i), stream), j). It
does not depend on the number of episodes or seeds, and training never uses it.
"""

import operator
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import polars as pl
from jaxtyping import PRNGKeyArray

from canary.algorithms.canary import CanaryConfig
from canary.algorithms.cantelli_cpo import CantelliCPOConfig
from canary.config.run_config import RunConfig
from canary.constraints import Joint, to_dict
from canary.errors import CanaryError
from canary.evaluation import make_player, refuse_faulty
from canary.exporting.trained_policy import TrainedPolicy
from canary.identity import RiskCritics, refuse_nonfinite
from canary.networks import MLP, Policy
from canary.numerics.running_statistics import RunningStatistics
from canary.rollout import CostAccount
from canary.runs import seeds
from canary.runs.checkpoint import load, newest, stored_updates
from canary.runs.devices import prepare_devices
from canary.runs.directory import versions
from canary.training import TrainingState

STREAM = 0x6576616C  # "eval": training folds in iteration numbers only
BATCH = 500  # episodes per call of the program


@dataclass(frozen=True)
class FrozenPolicies:
    """The stored states of all seeds; `notes` are about skipped checkpoints."""

    config: RunConfig
    states: TrainingState
    notes: list[str]

    @property
    def iteration(self) -> int:
        """Updates done."""
        return int(self.states.terms.iteration[0])

    def trained(self, seed: int) -> TrainedPolicy:
        """The policy of a seed, ready to act; non-finite weights are refused."""
        config, known = self.config, self.config.training.seeds
        if seed not in known:
            raise CanaryError(f"The run has no seed {seed}; it has {', '.join(map(str, known))}.")
        state = jax.tree.map(operator.itemgetter(known.index(seed)), self.states)
        policy = TrainedPolicy(
            policy=state.learner.policy,
            statistics=state.statistics,
            account=self.account,
            environment=config.environment,
            critics=self._risk_critics(state.learner.critics.networks),
            about={
                "constraint": to_dict(config.constraint),
                "epsilon": np.asarray(config.constraint.share).tolist(),
                "algorithm": config.algorithm_name,
                "seed": seed,
                "updates": self.iteration,
                "versions": versions(),
            },
        )
        refuse_nonfinite(policy.identity, seed)
        return policy

    def of_seed(self, seed: int) -> tuple[Policy, RunningStatistics | None]:
        """Policy and normaliser of a seed."""
        trained = self.trained(seed)
        return trained.policy, trained.statistics

    def _risk_critics(self, networks: MLP) -> RiskCritics | None:
        """The critics that estimate the risk of an episode; None for methods without them, and for
        several costs."""
        if isinstance(self.config.constraint, Joint):
            return None
        match self.config.algorithm:
            case CanaryConfig(dead_zone=dead_zone):  # reward, local cost, shaped cost
                return RiskCritics(jax.tree.map(lambda leaf: leaf[2:3], networks), dead_zone)
            case CantelliCPOConfig():  # reward, cost, its square
                return RiskCritics(jax.tree.map(lambda leaf: leaf[1:3], networks), None)
            case _:
                return None

    @property
    def account(self) -> CostAccount:
        config = self.config
        discount = config.algorithm.estimation.cost_discount
        return CostAccount(config.constraint.limit, discount, config.clock)


@dataclass(frozen=True, kw_only=True)
class EvaluationPlan:
    """Choices of an evaluation."""

    episodes: int = 1000
    """Fresh episodes per seed."""
    seeds: tuple[int, ...] | None = None
    """Seeds of the run; None: all."""
    deterministic: bool = False
    """Take the most likely action; otherwise actions are sampled, as in training."""
    evaluation_seed: int = 0
    """Seed of the key from which all randomness is derived."""

    @property
    def batch(self) -> int:
        """Episodes that are played in parallel."""
        return min(BATCH, self.episodes)

    def keys(self, seed: int, first: int) -> PRNGKeyArray:
        """The keys of one batch: episodes first, first + 1, ... of a seed."""
        key = jax.random.fold_in(
            jax.random.fold_in(jax.random.key(self.evaluation_seed), seed), STREAM
        )
        return jax.vmap(lambda j: jax.random.fold_in(key, j))(first + jnp.arange(self.batch))


def load_policies(config: RunConfig, run: Path, step: int | None = None) -> FrozenPolicies:
    """The newest intact policies, or those after `step` environment steps per seed."""
    prepare_devices()
    structure = seeds.SeedGroups(config).structure()

    def states_in(path: Path) -> TrainingState:
        return jax.tree.map(jnp.asarray, load(path, structure))

    if step is None:
        return FrozenPolicies(config, *newest(run, states_in))
    batch, stored = config.training.batch, stored_updates(run)
    if step % batch or step // batch not in stored:
        steps = [f"{update * batch:,}" for update in sorted(stored)]
        raise CanaryError(
            f"{run} has no state at step {step:,}; it has those at {', '.join(steps) or 'none'}. "
            "`--set training.keep_checkpoints=10` keeps ten over a training."
        )
    return FrozenPolicies(config, states_in(stored[step // batch]), [])


def play(
    policies: FrozenPolicies,
    plan: EvaluationPlan,
    report: Callable[[int, int], None] = lambda seed, count: None,
    program: Callable[..., Any] | None = None,
) -> tuple[pl.DataFrame, float]:
    """One row per episode, and the seconds that all took. `report(seed, episodes)` is called after
    every batch. `program(policy, statistics, keys)` replaces the usual program."""
    environment, batch = policies.config.environment, plan.batch
    if program is None:
        program = make_player(environment, policies.account, deterministic=plan.deterministic)
    asked = policies.config.training.seeds if plan.seeds is None else plan.seeds
    # An unknown seed must fail before an episode is played
    chosen = {seed: policies.of_seed(seed) for seed in asked}
    began, frames = time.monotonic(), []
    for seed, (policy, statistics) in chosen.items():
        for first in range(0, plan.episodes, batch):
            count = min(batch, plan.episodes - first)
            ends = program(policy, statistics, plan.keys(seed, first))
            ends = jax.tree.map(operator.itemgetter(slice(count)), ends)
            episode = np.arange(first, first + count)
            refuse_faulty(ends, lambda k, e=episode, s=seed: f"Episode {e[k]} of seed {s}")
            columns = {
                "seed": np.full(count, seed),
                "episode": episode,
                "return": ends.reward,
                "cost": ends.cost,
                "length": ends.length,
                "terminated": ends.terminated,
            }
            frames.append(pl.DataFrame(columns))
            report(seed, count)
    return pl.concat(frames), time.monotonic() - began
