"""The trust-region engine: Canary as published, CPO and CVaR-CPO hand it a `RiskConstraint` each.

`update` reads as the paper's Algorithm 1: estimate advantages and cost statistics, construct the
constraint, step the policy, fit the critics.
"""

from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

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
from canary.algorithms.signals import reward_advantages
from canary.algorithms.trust_region_step import (
    Bound,
    Samples,
    Surrogates,
    TrustRegionConfig,
    largest_advantage,
    step_metrics,
    trust_region_step,
)
from canary.networks import critic_values, make_critics, make_policy
from canary.numerics.advantages import centred, standardised
from canary.numerics.moments import EpisodeWindow
from canary.rollout import CostAccount
from canary.types import Metrics, Rollout, Terms

Values = Float[Array, "critic time env"]


@dataclass(frozen=True)
class Evidence:
    """What a constraint is estimated from."""

    rollout: Rollout
    values: Values
    """Of the constraint's critics at each step."""
    next_values: Values
    """After each step."""
    window: EpisodeWindow
    terms: Terms


@dataclass(frozen=True)
class RiskEstimate:
    """A constraint at the current policy, as one batch shows it."""

    advantages: Float[Array, "signal time env"]
    """Advantage of every signal that the constraint is made of."""
    targets: Float[Array, "critic time env"]
    """What each of the constraint's critics should learn from this batch."""
    bound: Bound
    length: Float[Array, ""]
    """Mean episode length, the factor between a per-step mean and an episode's sum."""
    metrics: Metrics
    weight: Float[Array, "time env"]
    """Weight of each step in the surrogates: the cost discount g_t, or 1."""


@dataclass(frozen=True)
class RiskConstraint:
    """What a method hands to the engine."""

    critics: int
    """Scalar critics."""
    estimate: Callable[[Evidence], RiskEstimate]
    model: CriticModel = NO_MODEL
    """A critic of another kind; its predictions follow the values of the scalar ones."""
    sees_spent: bool = True
    """Whether the scalar critics see g_t and y_t. So does the policy by default."""


def trust_region_algorithm(
    risk: RiskConstraint,
    task: Task,
    estimation: EstimationConfig,
    trust_region: TrustRegionConfig,
    critic: CriticConfig,
) -> Algorithm:
    """The trust-region method for one risk constraint."""
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
        values, next_values = (
            critic_values(learner.critics.networks, x)
            for x in (rollout.inputs, rollout.next_inputs)
        )
        predicted, predicted_next = (
            risk.model.predict(learner.extra, x) for x in (rollout.inputs, rollout.next_inputs)
        )
        reward_advantage, reward_target = reward_advantages(
            rollout, values[0], next_values[0], estimation
        )
        estimate = risk.estimate(
            Evidence(
                rollout,
                jnp.concatenate([values[1:], predicted]),
                jnp.concatenate([next_values[1:], predicted_next]),
                window,
                terms,
            )
        )
        targets = jnp.concatenate([reward_target[None], estimate.targets])
        samples = flatten(rollout, reward_advantage, estimate)
        scale = jnp.ones(()) if trust_region.as_authors else estimate.length
        key_critics, key_model = jax.random.split(key)
        ready = window.total >= estimation.warmup_episodes

        def improve(inputs: Inputs):
            old = inputs.evaluate(learner.policy)
            surrogates = Surrogates(learner.policy, inputs, old, samples, estimate.bound, scale)
            policy, step = trust_region_step(surrogates, ready, trust_region)
            metrics = step_metrics(surrogates, step, trust_region)
            if estimation.cost_discount < 1:  # else the theorem's bounds are infinite
                metrics["largest_advantage"] = largest_advantage(surrogates, policy)
            return policy, metrics

        def learn(inputs: Inputs):
            flat = targets.reshape(targets.shape[0], -1)
            fitted = fit_critics(
                learner.critics, optimiser, critic, inputs, flat, terms, key_critics,
                joint_clip=trust_region.as_authors,
            )  # fmt: skip
            return fitted, risk.model.fit(
                learner.extra, inputs, rollout, predicted_next, terms, key_model
            )

        rows = rollout.inputs.reshape(-1, task.input_size)
        (policy, metrics), ((critics, losses), (model, model_metrics)) = on_distinct_rows(
            rows, task.merge_capacity, lambda inputs: (improve(inputs), learn(inputs))
        )
        metrics |= critic_metrics(losses, targets) | model_metrics | estimate.metrics
        return Learner(policy, critics, model), metrics

    return Algorithm(init, update)


def flatten(
    rollout: Rollout, reward_advantage: Float[Array, "time env"], estimate: RiskEstimate
) -> Samples:
    """The reward advantage standardised, cost-type advantages centred: they carry units."""
    weight = estimate.weight.reshape(-1)
    signals = estimate.advantages.reshape(estimate.advantages.shape[0], -1)
    return Samples(
        action=rollout.action.reshape(-1, *rollout.action.shape[2:]),
        reward_advantage=standardised(reward_advantage.reshape(-1)),
        cost_advantages=jax.vmap(centred, in_axes=(0, None))(signals, weight),
        weight=weight,
    )
