"""The clipped engine, which Canary, PPO-Lagrangian, CPPO and PPO share: epochs of minibatch steps
on a clipped loss (Schulman et al., 2017).

    loss = -mean min(rho A, clip(rho, 1 - k, 1 + k) A) - h * entropy + sum_i mean (V_i - target_i)^2 / 4

with rho the probability ratio of the new policy to the one that acted. A method supplies an
`Objective`: the advantage A that the policy follows, and the targets of its critics. PPO's is the
reward alone.

Policy and critics share no weights, so each has its own Adam and its own gradient clip. Under a
joint clip the critic with the largest targets would scale down the policy gradient.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree, Shaped

from canary.algorithms.advantages import Batch, Steps, Values, batch_of, standardised
from canary.algorithms.base import Algorithm, EstimationConfig, Learner, Task
from canary.algorithms.critics import (
    Critics,
    critic_metrics,
    guarded_step,
    init_critics,
    make_optimiser,
    minibatch_orders,
)
from canary.constraints import Kind
from canary.networks import Policy, critic_values, make_critics, make_policy, within_bounds
from canary.numerics.costs import EpisodeWindow, episode_metrics
from canary.rollout import CostAccount
from canary.types import Metrics, Rollout, Terms
from canary.values import Amount, Count, Positive, Settings

Standardise = Literal["minibatch", "batch", "none"]
VALUE_WEIGHT = 0.5  # weight of the critics' losses; it matters only if their gradients are clipped


@dataclass(frozen=True, kw_only=True)
class ClippedConfig(Settings):
    """Settings of the shared clipped update."""

    ratio_clip: Positive = 0.2
    """PPO's clip range k: the probability ratio is clipped to [1 - k, 1 + k]."""
    epochs: Count = 4
    """Passes over the batch per update."""
    minibatch_size: Count = 500
    """Environment steps per gradient step; at most the whole batch."""
    entropy: Amount = 0.0
    """Weight of the entropy bonus. If `initial_std` is none, the weight is multiplied
    by the chosen deviation."""
    learning_rate: Positive = 3e-4
    """Adam's step size at the start; it falls linearly to zero over the run and is constant within an
    update."""
    gradient_clip: Positive = 0.5
    """Largest gradient norm of the policy and of each critic."""


@dataclass(frozen=True)
class Objective:
    """What the engine optimises on one batch."""

    advantage: Steps
    """Advantage that the policy follows."""
    targets: Values
    """Target of each critic, the reward critic first."""
    memory: PyTree
    """State that the method keeps between updates."""
    metrics: Metrics


@dataclass(frozen=True)
class ClippedMethod:
    """What a method gives the engine."""

    critics: int
    """Number of cost critics."""
    observe_spent: bool
    memory: PyTree
    """Initial state of the method."""
    standardise: Standardise
    """Samples over which the advantage is standardised; `none`: the objective has scaled it."""
    objective: Callable[[Batch, Terms, Any], Objective]
    """`objective(batch, terms, memory)`."""


@dataclass(frozen=True, kw_only=True)
class PPOConfig(Settings):
    """Settings of PPO; those the paper states per environment are in `config/presets.py`."""

    estimation: EstimationConfig = field(default_factory=EstimationConfig)
    clipped: ClippedConfig = field(default_factory=ClippedConfig)

    serves: ClassVar[tuple[Kind, ...]] = ("chance", "mean", "cvar")
    serves_several: ClassVar[bool] = True

    def make(self, task: Task) -> Algorithm:
        def reward_alone(batch: Batch, terms: Terms, memory: None) -> Objective:
            advantage, target = batch.reward
            return Objective(advantage, target[None], memory, {})

        method = ClippedMethod(
            critics=0,
            observe_spent=bool(self.estimation.observe_spent),
            memory=None,
            standardise="minibatch",
            objective=reward_alone,
        )
        return clipped_algorithm(method, task, self.estimation, self.clipped)


class ClippedExtra(eqx.Module):
    """State of a clipped method, besides its networks."""

    optimiser: optax.OptState
    """State of the policy's Adam."""
    memory: PyTree


class Minibatch(eqx.Module):
    """Steps of a whole batch, or of a share of it, as the loss needs them."""

    inputs: Float[Array, "sample input"]
    action: Shaped[Array, "sample ..."]
    log_prob: Float[Array, "sample"]
    advantage: Float[Array, "sample"]
    targets: Float[Array, "sample critic"]


def clipped_algorithm(
    method: ClippedMethod, task: Task, estimation: EstimationConfig, config: ClippedConfig
) -> Algorithm:
    """The clipped method for one objective."""
    unseen = 0 if method.observe_spent else CostAccount.SIZE - 1 + len(task.kinds)
    input_size = task.input_size - unseen
    budgets = len(task.kinds) if estimation.budget_layer and method.observe_spent else 0
    optimiser = make_optimiser(config.gradient_clip)

    def init(key: PRNGKeyArray) -> Learner:
        key_policy, key_critics = jax.random.split(key)
        policy = make_policy(
            key_policy, input_size, task.action_space, estimation.hidden, estimation.initial_std,
            budgets,
        )  # fmt: skip
        networks = make_critics(
            key_critics, 1 + method.critics, input_size, estimation.hidden, budgets
        )
        extra = ClippedExtra(optimiser.init(cast(Any, policy)), method.memory)
        return Learner(policy, init_critics(networks, optimiser), extra)

    def update(
        learner: Learner, rollout: Rollout, window: EpisodeWindow, terms: Terms, key: PRNGKeyArray
    ) -> tuple[Learner, Metrics]:
        batch = batch_of(learner.critics.networks, rollout, window, estimation)
        objective = method.objective(batch, terms, learner.extra.memory)
        whole = flatten(learner.policy, rollout, objective, input_size)
        if method.standardise == "batch":
            whole = eqx.tree_at(lambda b: b.advantage, whole, standardised(whole.advantage))
        samples = whole.advantage.shape[0]
        count = max(1, samples // config.minibatch_size)
        rate = config.learning_rate * (1 - terms.progress)

        def step(learner: Learner, order: Int[Array, "row"]):
            part = jax.tree.map(lambda leaf: leaf[order], whole)
            return gradient_step(learner, part, optimiser, rate, config, method.standardise)

        extra = ClippedExtra(learner.extra.optimiser, objective.memory)
        learned, (losses, reports) = jax.lax.scan(
            step, Learner(learner.policy, learner.critics, extra),
            minibatch_orders(key, samples, config.epochs, count),
        )  # fmt: skip
        metrics = jax.tree.map(lambda report: report.mean(), reports)
        metrics["kl"] = learned.policy(whole.inputs).kl_from(learner.policy(whole.inputs)).mean()
        metrics |= critic_metrics(losses.mean(0), objective.targets)
        metrics |= episode_metrics(window, estimation.window, terms.limit)
        return learned, metrics | objective.metrics

    return Algorithm(init, update)


def flatten(policy: Policy, rollout: Rollout, objective: Objective, input_size: int) -> Minibatch:
    """The whole batch with one axis of steps and the part of each input that the networks see."""
    inputs = rollout.inputs.reshape(-1, rollout.inputs.shape[-1])[:, :input_size]
    action = rollout.action.reshape(-1, *rollout.action.shape[2:])
    return Minibatch(
        inputs=inputs,
        action=action,
        log_prob=policy(inputs).log_prob(action),
        advantage=objective.advantage.reshape(-1),
        targets=objective.targets.reshape(objective.targets.shape[0], -1).T,
    )


def gradient_step(
    learner: Learner,
    batch: Minibatch,
    optimiser: optax.GradientTransformation,
    rate: Float[Array, ""],
    config: ClippedConfig,
    standardise: Standardise,
) -> tuple[Learner, tuple[Float[Array, "critic"], Metrics]]:
    """One step of every network whose gradient is finite."""
    (_, report), gradient = jax.value_and_grad(policy_loss, has_aux=True)(
        learner.policy, batch, config, standardise
    )
    policy, state = guarded_step(optimiser, rate, learner.policy, gradient, learner.extra.optimiser)

    def critics_loss(networks: PyTree) -> tuple[Float[Array, ""], Float[Array, "critic"]]:
        losses = ((critic_values(networks, batch.inputs).T - batch.targets) ** 2).mean(0)
        return VALUE_WEIGHT * losses.sum() / 2, losses

    gradient, losses = jax.grad(critics_loss, has_aux=True)(learner.critics.networks)
    critics = jax.vmap(lambda *each: guarded_step(optimiser, rate, *each))(
        learner.critics.networks, gradient, learner.critics.optimiser
    )
    extra = ClippedExtra(state, learner.extra.memory)
    return Learner(within_bounds(policy), Critics(*critics), extra), (losses, report)


def policy_loss(
    policy: Policy, batch: Minibatch, config: ClippedConfig, standardise: Standardise
) -> tuple[Float[Array, ""], Metrics]:
    """Minus the clipped surrogate and the entropy bonus."""
    distribution = policy(batch.inputs)
    advantage = batch.advantage if standardise != "minibatch" else standardised(batch.advantage)
    ratio = jnp.exp(distribution.log_prob(batch.action) - batch.log_prob)
    surrogate = clipped_surrogate(ratio, advantage, config.ratio_clip).mean()
    entropy = distribution.entropy().mean()
    clipped = (jnp.abs(ratio - 1) > config.ratio_clip).mean()
    return -surrogate - config.entropy * entropy, {"entropy": entropy, "clipped_share": clipped}


def clipped_surrogate(
    ratio: Float[Array, "sample"], advantage: Float[Array, "sample"], clip: float
) -> Float[Array, "sample"]:
    """min(rho A, clip(rho, 1 - k, 1 + k) A): no reward for moving a probability further than the
    clip."""
    return jnp.minimum(ratio * advantage, jnp.clip(ratio, 1 - clip, 1 + clip) * advantage)
