"""Fit critics to their targets by mean squared error: one network, one optimiser, one gradient clip each.

A joint loss would let the critic with the largest targets dictate the clip and starve the others.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from canary.algorithms.inputs import Inputs
from canary.networks import MLP
from canary.types import Metrics, Rollout


@dataclass(frozen=True, kw_only=True)
class CriticConfig:
    """Settings of the value networks and of their regression."""

    learning_rate: float = 3e-4
    """Adam's step size at the start; annealed linearly to zero over the run."""
    epochs: int = 80
    """Passes over the batch per update."""
    minibatches: int = 1
    """Gradient steps per pass, each on an equal share of the batch."""
    gradient_clip: float = 0.5
    """Largest gradient norm, per critic."""
    time_feature: bool = False
    """Whether critics (never the policy) see t / horizon: a valid baseline that knows the time left."""

    @property
    def steps(self) -> int:
        return self.epochs * self.minibatches


class Critics(eqx.Module):
    networks: MLP
    """Stacked along the first axis."""
    optimiser: optax.OptState


@dataclass(frozen=True)
class CriticModel:
    """A critic of another kind than the scalar ones: how it begins, predicts, and learns from a rollout."""

    init: Callable[[PRNGKeyArray, int], PyTree]
    """`init(key, input_size)`: networks and optimiser."""
    predict: Callable[[PyTree, Float[Array, "time env input"]], Float[Array, "output time env"]]
    fit: Callable[
        [PyTree, Inputs, Rollout, Float[Array, "output time env"], PRNGKeyArray], tuple[PyTree, Metrics]
    ]
    """`fit(state, inputs, rollout, predictions after each step, key)`."""


NO_MODEL = CriticModel(
    init=lambda key, input_size: None,
    predict=lambda state, x: jnp.zeros((0, *x.shape[:-1])),
    fit=lambda state, inputs, rollout, after, key: (state, {}),
)


def make_optimiser(config: CriticConfig, updates: int) -> optax.GradientTransformation:
    schedule = optax.linear_schedule(config.learning_rate, 0.0, updates * config.steps)
    return optax.chain(optax.clip_by_global_norm(config.gradient_clip), optax.adam(schedule, eps=1e-5))


def init_critics(networks: Any, optimiser: optax.GradientTransformation) -> Critics:
    return Critics(networks, jax.vmap(optimiser.init)(networks))


def fit_critics(
    critics: Critics,
    optimiser: optax.GradientTransformation,
    config: CriticConfig,
    inputs: Inputs,
    targets: Float[Array, "critic sample"],
    key: PRNGKeyArray,
) -> tuple[Critics, Float[Array, "critic"]]:
    """Returns the fitted critics and the loss of each at its last gradient step.

    A critic whose loss is not finite keeps its weights for that step. Samples that share a row pull its value towards
    their mean and only towards it: their squared error is that of the mean plus their spread around it.
    """
    means = inputs.averaged(targets)
    merged_shares = inputs.shares() if inputs.merged else None

    def step(critics: Critics, batch: tuple[Inputs, Float[Array, "critic row"]]):
        x, targets = batch
        weights = x.shares() if merged_shares is None else merged_shares

        def learn(network: PyTree, state: optax.OptState, target: Float[Array, "row"]):
            def loss_of(network: MLP) -> Float[Array, ""]:
                return weights @ (network(x.rows)[:, 0] - target) ** 2

            loss, gradient = jax.value_and_grad(loss_of)(network)
            change, new_state = optimiser.update(gradient, state)
            finite = jnp.isfinite(loss) & jnp.isfinite(optax.tree.norm(gradient))
            new = (optax.apply_updates(network, change), new_state)
            kept = jax.tree.map(lambda a, b: jnp.where(finite, a, b), new, (network, state))
            return *kept, loss

        networks, state, loss = jax.vmap(learn)(critics.networks, critics.optimiser, targets)
        return Critics(networks, state), loss

    critics, losses = over_minibatches(step, critics, config, inputs, means, key)
    return critics, losses[-1] + (targets**2).mean(1) - means**2 @ inputs.shares()


def over_minibatches(
    step: Callable[[PyTree, tuple[Inputs, Array]], tuple[PyTree, Array]],
    state: PyTree,
    config: CriticConfig,
    inputs: Inputs,
    targets: Float[Array, "target sample"],
    key: PRNGKeyArray,
) -> tuple[PyTree, Array]:
    """All gradient steps of an update, each on the whole batch or on a share of it; their reports stacked."""
    if config.minibatches == 1 or inputs.merged:
        # Merged inputs are so few that every gradient step can afford all of them.
        return jax.lax.scan(lambda s, _: step(s, (inputs, targets)), state, length=config.steps)
    samples = targets.shape[1]
    size = samples // config.minibatches
    orders = jax.vmap(lambda k: jax.random.permutation(k, samples))(jax.random.split(key, config.epochs))
    minibatches = orders[:, : size * config.minibatches].reshape(config.steps, size)
    return jax.lax.scan(
        lambda s, rows: step(s, (Inputs(inputs.rows[rows]), targets[:, rows])), state, minibatches
    )


def critic_metrics(losses: Float[Array, "critic"], targets: Float[Array, "critic time env"]) -> Metrics:
    """Share of each target's variance that its critic leaves unexplained."""
    spread = jnp.maximum(targets.reshape(targets.shape[0], -1).var(1), 1e-12)
    return {f"critic_{index}_unexplained": share for index, share in enumerate(losses / spread)}
