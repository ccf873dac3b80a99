"""The trust-region engine. Canary as published, CPO and CVaR-CPO each give it a `RiskConstraint`.

`update` reads as the paper's Algorithm 1: estimate advantages and cost statistics, construct the
constraint, step the policy, fit the critics.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from canary.algorithms.advantages import Batch, Steps, Values, batch_of, centred, standardised
from canary.algorithms.base import Algorithm, EstimationConfig, Learner, Task
from canary.algorithms.critics import (
    NO_MODEL,
    CriticConfig,
    CriticModel,
    critic_metrics,
    fit_critics,
    init_critics,
    make_optimiser,
)
from canary.algorithms.inputs import Inputs, on_distinct_rows
from canary.algorithms.trust_region_step import (
    Bound,
    Samples,
    Surrogates,
    TrustRegionConfig,
    largest_advantage,
    step_metrics,
    trust_region_step,
)
from canary.constraints import Kind
from canary.networks import make_critics, make_policy
from canary.numerics.costs import EpisodeWindow, cost_moments
from canary.rollout import CostAccount
from canary.types import Metrics, Rollout, Terms
from canary.values import Settings


@dataclass(frozen=True, kw_only=True)
class TrustRegionSettings(Settings):
    """Settings that the methods of this engine share."""

    estimation: EstimationConfig = field(default_factory=EstimationConfig)
    trust_region: TrustRegionConfig = field(default_factory=TrustRegionConfig)
    critic: CriticConfig = field(default_factory=CriticConfig)

    serves: ClassVar[tuple[Kind, ...]] = ("chance",)
    """Kinds of constraint that the method supports."""


@dataclass(frozen=True)
class RiskEstimate:
    """A constraint at the current policy, estimated from one batch."""

    advantages: Float[Array, "signal time env"]
    """Advantages of the signals in the constraint."""
    targets: Values
    """Target of each of the constraint's critics."""
    bound: Bound
    """Maps the changes of the signals' episode sums to the constraint; <= 0 is safe."""
    weight: Steps | None = None
    """Weight of each step in the surrogates: the cost discount g_t; None: 1."""
    metrics: Metrics = field(default_factory=dict)


@dataclass(frozen=True)
class RiskConstraint:
    """What a method gives the engine."""

    critics: int
    """Number of scalar cost critics."""
    estimate: Callable[[Batch, Terms], RiskEstimate]
    """`estimate(batch, terms)`, where the batch has the values of the constraint's critics only."""
    model: CriticModel = NO_MODEL
    """A non-scalar critic, whose predictions follow the values of the scalar ones."""
    sees_spent: bool = True
    """Whether the scalar critics see g_t and y_t; by default the policy sees the same."""


def trust_region_algorithm(
    risk: RiskConstraint, task: Task, settings: TrustRegionSettings
) -> Algorithm:
    """The trust-region method for one risk constraint."""
    estimation, region, critic = settings.estimation, settings.trust_region, settings.critic
    optimiser = make_optimiser(critic.gradient_clip)

    def init(key: PRNGKeyArray) -> Learner:
        key_policy, key_critics, key_model = jax.random.split(key, 3)
        observed = estimation.observe_spent
        sizes = {True: task.input_size, False: task.input_size - CostAccount.SIZE}
        seen = sizes[risk.sees_spent if observed is None else observed]
        policy = make_policy(
            key_policy, seen, task.action_space, estimation.hidden, estimation.initial_std
        )
        networks = make_critics(
            key_critics, 1 + risk.critics, sizes[risk.sees_spent], estimation.hidden
        )
        model = risk.model.init(key_model, task.input_size)
        return Learner(policy, init_critics(networks, optimiser), model)

    def update(
        learner: Learner, rollout: Rollout, window: EpisodeWindow, terms: Terms, key: PRNGKeyArray
    ) -> tuple[Learner, Metrics]:
        batch = batch_of(learner.critics.networks, rollout, window, estimation)
        after = risk.model.predict(learner.extra, rollout.next_inputs)
        own = replace(
            batch,
            values=jnp.concatenate(
                [batch.values[1:], risk.model.predict(learner.extra, rollout.inputs)]
            ),
            next_values=jnp.concatenate([batch.next_values[1:], after]),
        )
        estimate = risk.estimate(own, terms)
        reward_advantage, reward_target = batch.reward
        targets = jnp.concatenate([reward_target[None], estimate.targets])
        samples = flatten(rollout, reward_advantage, estimate)
        # Converts a mean over steps to a sum over an episode
        length = cost_moments(window, estimation.window, terms.limit).length
        scale = jnp.ones(()) if region.as_authors else length
        key_critics, key_model = jax.random.split(key)
        ready = window.total >= estimation.warmup_episodes

        def improve(inputs: Inputs):
            old = inputs.evaluate(learner.policy)
            surrogates = Surrogates(learner.policy, inputs, old, samples, estimate.bound, scale)
            policy, step = trust_region_step(surrogates, ready, region)
            metrics = step_metrics(surrogates, step, region)
            if estimation.cost_discount < 1:  # else the theorem's bounds are infinite
                metrics["largest_advantage"] = largest_advantage(surrogates, policy)
            return policy, metrics

        def learn(inputs: Inputs):
            flat = targets.reshape(targets.shape[0], -1)
            fitted = fit_critics(
                learner.critics, optimiser, critic, inputs, flat, terms, key_critics,
                joint_clip=region.as_authors,
            )  # fmt: skip
            return fitted, risk.model.fit(learner.extra, inputs, rollout, after, terms, key_model)

        rows = rollout.inputs.reshape(-1, task.input_size)
        (policy, metrics), ((critics, losses), (model, model_metrics)) = on_distinct_rows(
            rows, task.merge_capacity, lambda inputs: (improve(inputs), learn(inputs))
        )
        metrics |= critic_metrics(losses, targets) | model_metrics | estimate.metrics
        return Learner(policy, critics, model), metrics

    return Algorithm(init, update)


def flatten(rollout: Rollout, reward_advantage: Steps, estimate: RiskEstimate) -> Samples:
    """Flat samples: the reward advantage standardised, cost-type advantages only centred."""
    given = estimate.weight
    weight = (jnp.ones_like(rollout.discount) if given is None else given).reshape(-1)
    signals = estimate.advantages.reshape(estimate.advantages.shape[0], -1)
    return Samples(
        action=rollout.action.reshape(-1, *rollout.action.shape[2:]),
        reward_advantage=standardised(reward_advantage.reshape(-1)),
        cost_advantages=jax.vmap(centred, in_axes=(0, None))(signals, weight),
        weight=weight,
    )
