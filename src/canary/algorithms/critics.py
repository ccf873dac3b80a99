"""Fit critics to their targets by mean squared error, each with its own network, optimiser and
gradient clip.

Under a joint clip the critic with the largest targets would shrink the gradients of the others
below Adam's epsilon.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from canary.algorithms.inputs import Inputs
from canary.networks import MLP
from canary.types import Metrics, Rollout, Terms
from canary.values import Count, Positive, Settings


@dataclass(frozen=True, kw_only=True)
class CriticConfig(Settings):
    """Settings for fitting the critics of a trust-region method."""

    learning_rate: Positive = 3e-4
    """Adam's step size at the start; it falls linearly to zero over the run."""
    epochs: Count = 80
    """Passes over the batch per update."""
    minibatches: Count = 1
    """Gradient steps per pass, each on an equal share of the batch."""
    gradient_clip: Positive = 0.5
    """Largest gradient norm of each critic."""

    @property
    def steps(self) -> int:
        return self.epochs * self.minibatches


class Critics(eqx.Module):
    networks: MLP
    """Stacked along the first axis."""
    optimiser: optax.OptState


@dataclass(frozen=True)
class CriticModel:
    """A critic that is not scalar, such as one of quantiles."""

    init: Callable[[PRNGKeyArray, int], PyTree]
    """`init(key, input_size)` makes networks and optimiser."""
    predict: Callable[[PyTree, Float[Array, "time env input"]], Float[Array, "output time env"]]
    fit: Callable[
        [PyTree, Inputs, Rollout, Float[Array, "output time env"], Terms, PRNGKeyArray],
        tuple[PyTree, Metrics],
    ]
    """`fit(state, inputs, rollout, predictions after each step, terms, key)` learns a batch."""


FitBatch = tuple[Inputs, Float[Array, "target row"], Float[Array, ""]]
"""Rows, targets and learning rate of one gradient step."""

NO_MODEL = CriticModel(
    init=lambda key, input_size: None,
    predict=lambda state, x: jnp.zeros((0, *x.shape[:-1])),
    fit=lambda state, inputs, rollout, after, terms, key: (state, {}),
)


def make_optimiser(gradient_clip: float) -> optax.GradientTransformation:
    """Adam on the clipped gradient; the caller applies the learning rate, a run-time value."""
    return optax.chain(optax.clip_by_global_norm(gradient_clip), optax.scale_by_adam(eps=1e-5))


def guarded_step(
    optimiser: optax.GradientTransformation,
    rate: Float[Array, ""],
    network: PyTree,
    gradient: PyTree,
    state: optax.OptState,
) -> tuple[PyTree, optax.OptState]:
    """One step of the optimiser, or none if the gradient is not finite."""
    direction, new_state = optimiser.update(gradient, state)
    new = (jax.tree.map(lambda leaf, change: leaf - rate * change, network, direction), new_state)
    finite = jnp.isfinite(optax.tree.norm(gradient))
    return jax.tree.map(lambda a, b: jnp.where(finite, a, b), new, (network, state))


def minibatch_orders(
    key: PRNGKeyArray, samples: int, epochs: int, count: int
) -> Int[Array, "step row"]:
    """The samples of each gradient step: every epoch shuffles all samples and deals them into `count`
    equal shares."""
    size = samples // count
    orders = jax.vmap(lambda k: jax.random.permutation(k, samples))(jax.random.split(key, epochs))
    return orders[:, : size * count].reshape(epochs * count, size)


def learning_rates(config: CriticConfig, terms: Terms) -> Float[Array, "step"]:
    """Learning rates of the gradient steps of this update, linear to zero over the run."""
    done = terms.iteration + jnp.arange(config.steps) / config.steps
    return config.learning_rate * jnp.maximum(1 - done / terms.updates, 0)


def init_critics(networks: Any, optimiser: optax.GradientTransformation) -> Critics:
    return Critics(networks, jax.vmap(optimiser.init)(networks))


def fit_critics(
    critics: Critics,
    optimiser: optax.GradientTransformation,
    config: CriticConfig,
    inputs: Inputs,
    targets: Float[Array, "critic sample"],
    terms: Terms,
    key: PRNGKeyArray,
    *,
    joint_clip: bool = False,
) -> tuple[Critics, Float[Array, "critic"]]:
    """The fitted critics and the loss of each at its last gradient step. With a `joint_clip` the
    norm of all gradients together is clipped, as with one summed loss.

    A critic whose gradient is not finite keeps its weights for that step. Samples that share a row
    have their mean as target; their spread is added to the loss.
    """
    means = inputs.averaged(targets)
    merged_shares = inputs.row_weights() if inputs.merged else None

    def step(critics: Critics, batch: FitBatch):
        x, targets, rate = batch
        weights = x.row_weights() if merged_shares is None else merged_shares

        def loss_of(network: MLP, target: Float[Array, "row"]) -> Float[Array, ""]:
            return weights @ (network(x.rows)[:, 0] - target) ** 2

        loss, gradient = jax.vmap(jax.value_and_grad(loss_of))(critics.networks, targets)
        if joint_clip:
            clip = optax.clip_by_global_norm(config.gradient_clip)
            gradient, _ = clip.update(gradient, optax.EmptyState())
        take = partial(guarded_step, optimiser, rate)
        moved = jax.vmap(take)(critics.networks, gradient, critics.optimiser)
        return Critics(*moved), loss

    critics, losses = over_minibatches(step, critics, config, inputs, means, terms, key)
    return critics, losses[-1] + (targets**2).mean(1) - means**2 @ inputs.row_weights()


def over_minibatches(
    step: Callable[[PyTree, FitBatch], tuple[PyTree, Array]],
    state: PyTree,
    config: CriticConfig,
    inputs: Inputs,
    targets: Float[Array, "target sample"],
    terms: Terms,
    key: PRNGKeyArray,
) -> tuple[PyTree, Array]:
    """All gradient steps of an update, each on a minibatch or on the whole batch."""
    rates, samples = learning_rates(config, terms), targets.shape[1]
    if config.minibatches == 1 or inputs.merged:  # merged inputs are few
        return jax.lax.scan(lambda s, rate: step(s, (inputs, targets, rate)), state, rates)

    def on_rows(state: PyTree, batch: tuple[Int[Array, "row"], Float[Array, ""]]):
        rows, rate = batch
        return step(state, (Inputs(inputs.rows[rows]), targets[:, rows], rate))

    orders = minibatch_orders(key, samples, config.epochs, config.minibatches)
    return jax.lax.scan(on_rows, state, (orders, rates))


def critic_metrics(
    losses: Float[Array, "critic"], targets: Float[Array, "critic time env"]
) -> Metrics:
    """Share of each target's variance that its critic leaves unexplained."""
    spread = jnp.maximum(targets.reshape(targets.shape[0], -1).var(1), 1e-12)
    return {f"critic_{index}_unexplained": share for index, share in enumerate(losses / spread)}
