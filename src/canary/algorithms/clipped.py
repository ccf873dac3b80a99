"""The clipped engine, which Canary, PPO-Lagrangian, CPPO and PPO share: epochs of minibatch steps
on a clipped loss (Schulman et al., 2017).

    loss = -mean min(rho A, clip(rho, 1 - k, 1 + k) A) - h * entropy + sum_i mean (V_i - target_i)^2 / 4

with rho the probability ratio of the new policy to the one that acted. A method hands over an
`Objective`: the advantage A that the policy follows, and the targets of its critics.

Policy and critics have no weights in common, so each has its own Adam and its own gradient clip:
under a joint clip the critic with the largest targets would decide how much of the policy gradient
remains.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree, Shaped

from canary.algorithms.base import Algorithm, EstimationConfig, Learner, Task
from canary.algorithms.critics import (
    Critics,
    critic_metrics,
    guarded_step,
    init_critics,
    make_optimiser,
)
from canary.algorithms.inputs import Inputs, on_distinct_rows
from canary.algorithms.signals import episode_metrics, reward_advantages
from canary.networks import Policy, critic_values, make_critics, make_policy, within_bounds
from canary.numerics.advantages import standardised
from canary.numerics.moments import EpisodeWindow
from canary.rollout import CostAccount
from canary.types import Metrics, Rollout, Terms
from canary.values import Amount, Count, Positive, Settings

Steps = Float[Array, "time env"]
Values = Float[Array, "critic time env"]
Standardise = Literal["minibatch", "batch", "none"]
VALUE_WEIGHT = 0.5  # of the critics' losses; it matters only where their gradients are clipped


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
    """Weight of the entropy bonus. Where the initial deviation is chosen (`initial_std=none`), the
    weight is multiplied by it."""
    learning_rate: Positive = 3e-4
    """Adam's step size at the start; annealed linearly to zero over the run, constant within an
    update."""
    gradient_clip: Positive = 0.5
    """Largest gradient norm, for the policy and for each critic."""


@dataclass(frozen=True)
class Batch:
    """What an objective is made of."""

    rollout: Rollout
    reward: tuple[Steps, Steps]
    """Advantage and critic target of the reward."""
    values: Values
    """Of all critics at each step, that of the reward first."""
    next_values: Values
    """After it."""
    window: EpisodeWindow
    """Recent episodes."""

    def by_cost(self) -> "list[Batch]":
        """The batch as each cost sees it."""
        pairs = zip(self.rollout.by_cost(), self.window.by_cost(), strict=True)
        return [replace(self, rollout=rollout, window=window) for rollout, window in pairs]


@dataclass(frozen=True)
class Objective:
    """What a method makes of a batch."""

    advantage: Steps
    """What the policy follows."""
    targets: Values
    memory: PyTree
    """What the method keeps between updates."""
    metrics: Metrics


@dataclass(frozen=True)
class ClippedMethod:
    """What a clipped method adds to the engine."""

    critics: int
    """Number of cost critics."""
    observe_spent: bool
    memory: PyTree
    """Its memory at the start."""
    standardise: Standardise
    """What the advantage is standardised over; `none`: the objective did it."""
    objective: Callable[[Batch, Terms, Any], Objective]
    """Of a batch, the terms and the memory."""


class ClippedExtra(eqx.Module):
    """What a clipped method keeps, besides its networks."""

    optimiser: optax.OptState
    """Of the policy."""
    memory: PyTree


class Minibatch(eqx.Module):
    """Steps as the loss sees them: of a whole batch, or of a share of it."""

    inputs: Inputs
    action: Shaped[Array, "sample ..."]
    log_prob: Float[Array, "sample"]
    advantage: Float[Array, "sample"]
    targets: Float[Array, "sample critic"]

    def subset(self, samples: Int[Array, "row"]) -> "Minibatch":
        rest = (self.action, self.log_prob, self.advantage, self.targets)
        return Minibatch(self.inputs.subset(samples), *(leaf[samples] for leaf in rest))


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
        values = critic_values(learner.critics.networks, rollout.inputs)
        next_values = critic_values(learner.critics.networks, rollout.next_inputs)
        reward = reward_advantages(rollout, values[0], next_values[0], estimation)
        objective = method.objective(
            Batch(rollout, reward, values, next_values, window), terms, learner.extra.memory
        )
        batch = flatten(learner.policy, rollout, objective, input_size)
        if method.standardise == "batch":
            batch = eqx.tree_at(lambda b: b.advantage, batch, standardised(batch.advantage))
        orders = minibatch_orders(key, batch.advantage.shape[0], config)
        rate = config.learning_rate * (1 - terms.progress)
        learner = Learner(
            learner.policy, learner.critics, ClippedExtra(learner.extra.optimiser, objective.memory)
        )

        def learn(inputs: Inputs):
            whole = eqx.tree_at(lambda b: b.inputs, batch, inputs)

            def step(learner: Learner, order: Int[Array, "row"]):
                part = whole.subset(order)
                return gradient_step(learner, part, optimiser, rate, config, method.standardise)

            learned, (losses, reports) = jax.lax.scan(step, learner, orders)
            kl = inputs.evaluate(learned.policy).kl_from(inputs.evaluate(learner.policy)).mean()
            return learned, losses, jax.tree.map(lambda report: report.mean(), reports) | {"kl": kl}

        # The smallest merged program has an eighth of the capacity; minibatches below that are
        # cheaper as they are.
        capacity = task.merge_capacity if orders.shape[1] > task.merge_capacity // 8 else 0
        learned, losses, metrics = on_distinct_rows(batch.inputs.rows, capacity, learn)
        metrics |= critic_metrics(losses.mean(0), objective.targets)
        metrics |= episode_metrics(window, estimation, terms.limit)
        return learned, metrics | objective.metrics

    return Algorithm(init, update)


def flatten(policy: Policy, rollout: Rollout, objective: Objective, input_size: int) -> Minibatch:
    """The whole batch as one axis of steps, with as much of each input as the networks see."""

    def steps_first(array: Values) -> Float[Array, "sample critic"]:
        return array.reshape(array.shape[0], -1).T

    inputs = rollout.inputs.reshape(-1, rollout.inputs.shape[-1])[:, :input_size]
    action = rollout.action.reshape(-1, *rollout.action.shape[2:])
    return Minibatch(
        inputs=Inputs(inputs),
        action=action,
        log_prob=policy(inputs).log_prob(action),
        advantage=objective.advantage.reshape(-1),
        targets=steps_first(objective.targets),
    )


def minibatch_orders(
    key: PRNGKeyArray, samples: int, config: ClippedConfig
) -> Int[Array, "step row"]:
    """The steps of each minibatch: every epoch shuffles all of them and deals them into equal
    shares."""
    count = max(1, samples // config.minibatch_size)
    size = samples // count
    orders = jax.vmap(lambda k: jax.random.permutation(k, samples))(
        jax.random.split(key, config.epochs)
    )
    return orders[:, : count * size].reshape(config.epochs * count, size)


def gradient_step(
    learner: Learner,
    batch: Minibatch,
    optimiser: optax.GradientTransformation,
    rate: Float[Array, ""],
    config: ClippedConfig,
    standardise: Standardise,
) -> tuple[Learner, tuple[Float[Array, "critic"], Metrics]]:
    """One step of every network; networks whose gradient is not finite stay as they are."""
    (_, report), gradient = jax.value_and_grad(policy_loss, has_aux=True)(
        learner.policy, batch, config, standardise
    )
    policy, state = guarded_step(optimiser, rate, learner.policy, gradient, learner.extra.optimiser)

    def critics_loss(networks: PyTree) -> tuple[Float[Array, ""], Float[Array, "critic"]]:
        values = batch.inputs.evaluate(lambda rows: critic_values(networks, rows).T)
        losses = ((values - batch.targets) ** 2).mean(0)
        return VALUE_WEIGHT * losses.sum() / 2, losses

    gradient, losses = jax.grad(critics_loss, has_aux=True)(learner.critics.networks)
    critics = jax.vmap(lambda *each: guarded_step(optimiser, rate, *each))(
        learner.critics.networks, gradient, learner.critics.optimiser
    )
    policy = within_bounds(policy)
    return Learner(policy, Critics(*critics), ClippedExtra(state, learner.extra.memory)), (
        losses,
        report,
    )


def policy_loss(
    policy: Policy, batch: Minibatch, config: ClippedConfig, standardise: Standardise
) -> tuple[Float[Array, ""], Metrics]:
    """Minus the clipped surrogate and the entropy bonus."""
    distribution = batch.inputs.evaluate(policy)
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
