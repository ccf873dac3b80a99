"""The update that Canary, CPO and CVaR-CPO share: they differ only in the `RiskConstraint` they hand to it.

It reads as the paper's Algorithm 1: estimate advantages and cost statistics, construct the constraint, step the policy,
fit the critics.
"""

from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from canary.algorithms.base import Algorithm, EstimationConfig, Learner, Task
from canary.algorithms.critics import CriticConfig, fit_critics, init_critics, make_optimiser
from canary.algorithms.inputs import Inputs, on_distinct_rows
from canary.algorithms.trust_region_step import Samples, TrustRegionConfig, report_metrics, trust_region_step
from canary.networks import Policy, critic_values, make_critics, make_policy
from canary.numerics.advantages import centred, generalised_advantages, standardised
from canary.numerics.moments import EpisodeWindow
from canary.types import Metrics, Rollout


@dataclass(frozen=True)
class RiskEstimate:
    """A constraint at the current policy, as one batch shows it."""

    advantages: Float[Array, "signal time env"]
    """Advantage of every signal that the constraint is made of."""
    targets: Float[Array, "critic time env"]
    """What each of the constraint's critics should learn from this batch."""
    bound: Callable[[Float[Array, "signal"]], Float[Array, "constraint"]]
    """Constraint surrogates L_i as a function of the surrogate changes of the signals; <= 0 is safe."""
    length: Float[Array, ""]
    """Mean episode length."""
    metrics: Metrics
    worst_case: Callable[[Float[Array, "signal"]], Metrics] | None = None
    """Bounds on what the new policy may do, given the largest advantage of each signal under it; None: no such bound."""


@dataclass(frozen=True)
class RiskConstraint:
    """What a method must say about its risk: how many critics it needs and what it makes of a batch."""

    critics: int
    estimate: Callable[[Rollout, Float[Array, "critic time env"], Float[Array, "critic time env"], EpisodeWindow], RiskEstimate]  # fmt: skip


def trust_region_algorithm(
    risk: RiskConstraint,
    task: Task,
    estimation: EstimationConfig,
    trust_region: TrustRegionConfig,
    critic: CriticConfig,
) -> Algorithm:
    """The trust-region method for one risk constraint."""
    optimiser = make_optimiser(critic, task.updates)
    critic_inputs = task.input_size + critic.time_feature

    def init(key: PRNGKeyArray) -> Learner:
        key_policy, key_critics = jax.random.split(key)
        policy = make_policy(key_policy, task.input_size, task.action_space, estimation.hidden)
        networks = make_critics(key_critics, 1 + risk.critics, critic_inputs, estimation.hidden)
        return Learner(policy, init_critics(networks, optimiser))

    def update(
        learner: Learner, rollout: Rollout, window: EpisodeWindow, key: PRNGKeyArray
    ) -> tuple[Learner, Metrics]:
        seen, seen_next = critic_views(rollout, critic.time_feature)
        values = critic_values(learner.critics.networks, seen)
        next_values = critic_values(learner.critics.networks, seen_next)

        reward_advantage = reward_advantages(rollout, values[0], next_values[0], estimation)
        estimate = risk.estimate(rollout, values[1:], next_values[1:], window)
        targets = jnp.concatenate([(reward_advantage + values[0])[None], estimate.targets])

        samples = flatten(rollout, reward_advantage, estimate)
        scale = estimate.length if trust_region.surrogate_scale == "episode" else jnp.ones(())
        ready = window.total >= estimation.warmup_episodes

        def improve(inputs: Inputs):
            return trust_region_step(
                learner.policy, inputs, samples, estimate.bound, scale, ready, trust_region
            )

        def learn(inputs: Inputs):
            flat = targets.reshape(targets.shape[0], -1)
            return fit_critics(learner.critics, optimiser, critic, inputs, flat, key)

        rows = rollout.inputs.reshape(-1, task.input_size)
        if critic.time_feature:
            policy, report = on_distinct_rows(rows, task.merge_capacity, improve)
            critics, losses = learn(Inputs(seen.reshape(-1, critic_inputs)))
        else:
            (policy, report), (critics, losses) = on_distinct_rows(
                rows, task.merge_capacity, lambda inputs: (improve(inputs), learn(inputs))
            )
        metrics = report_metrics(report, trust_region) | critic_metrics(losses, targets) | estimate.metrics
        if estimate.worst_case is not None:
            metrics |= estimate.worst_case(largest_advantages(learner.policy, policy, rows, samples))
        return Learner(policy, critics), metrics

    return Algorithm(init, update)


def critic_views(rollout: Rollout, with_time: bool) -> tuple[Array, Array]:
    """What critics see of each step and of the state after it."""
    if not with_time:
        return rollout.inputs, rollout.next_inputs
    return (
        jnp.concatenate([rollout.inputs, rollout.elapsed[..., None]], -1),
        jnp.concatenate([rollout.next_inputs, rollout.next_elapsed[..., None]], -1),
    )


def reward_advantages(
    rollout: Rollout, value: Float[Array, "time env"], next_value: Float[Array, "time env"], config: EstimationConfig
) -> Float[Array, "time env"]:
    stops = rollout.terminated if config.bootstrap_truncated else rollout.done
    return generalised_advantages(
        rollout.reward, value, next_value, stops=stops, done=rollout.done,
        discount=config.reward_discount, decay=config.gae_lambda,
    )  # fmt: skip


def flatten(rollout: Rollout, reward_advantage: Float[Array, "time env"], estimate: RiskEstimate) -> Samples:
    """The reward advantage standardised, cost-type advantages centred: they carry units."""
    weight = rollout.discount.reshape(-1)
    signals = estimate.advantages.reshape(estimate.advantages.shape[0], -1)
    return Samples(
        action=rollout.action.reshape(-1, *rollout.action.shape[2:]),
        reward_advantage=standardised(reward_advantage.reshape(-1)),
        cost_advantages=jax.vmap(centred, in_axes=(0, None))(signals, weight),
        weight=weight,
    )


def largest_advantages(
    old: Policy, new: Policy, rows: Float[Array, "sample input"], samples: Samples
) -> Float[Array, "signal"]:
    """max over the batch of |ratio A|: a sampled stand-in for alpha = max_x |E_{a ~ new} A(x, a)| of the paper's theorem."""
    ratio = jnp.exp(new(rows).log_prob(samples.action) - old(rows).log_prob(samples.action))
    return jnp.abs(ratio * samples.cost_advantages).max(1)


def critic_metrics(losses: Float[Array, "critic"], targets: Float[Array, "critic time env"]) -> Metrics:
    """Share of each target's variance that its critic leaves unexplained."""
    spread = jnp.maximum(targets.reshape(targets.shape[0], -1).var(1), 1e-12)
    return {f"critic_{index}_unexplained": share for index, share in enumerate(losses / spread)}
