"""Fit scalar critics to their targets by mean squared error: one network, one optimiser and one gradient clip each.

A joint loss would let the critic with the largest targets dictate the clip and starve the others.
"""

from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, PRNGKeyArray

from canary.algorithms.inputs import Inputs
from canary.networks import MLP


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
    """Whether critics (never the policy) see t / horizon: a valid baseline that knows how much time is left."""

    @property
    def steps(self) -> int:
        return self.epochs * self.minibatches


class Critics(eqx.Module):
    networks: MLP
    """Stacked along the first axis."""
    optimiser: optax.OptState


def make_optimiser(config: CriticConfig, updates: int) -> optax.GradientTransformation:
    schedule = optax.linear_schedule(config.learning_rate, 0.0, updates * config.steps)
    return optax.chain(optax.clip_by_global_norm(config.gradient_clip), optax.adam(schedule, eps=1e-5))


def init_critics(networks: MLP, optimiser: optax.GradientTransformation) -> Critics:
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

    A critic whose loss is not finite keeps its weights for that step.
    """

    def step(critics: Critics, batch: tuple[Inputs, Float[Array, "critic row"]]):
        x, targets = batch

        def learn(network: MLP, state: optax.OptState, target: Float[Array, "row"]):
            def loss_of(network: MLP) -> Float[Array, ""]:
                return jnp.mean((x.evaluate(network)[:, 0] - target) ** 2)

            loss, gradient = jax.value_and_grad(loss_of)(network)
            change, new_state = optimiser.update(gradient, state)
            finite = jnp.isfinite(loss) & jnp.isfinite(optax.global_norm(gradient))
            new = (optax.apply_updates(network, change), new_state)
            kept = jax.tree.map(lambda a, b: jnp.where(finite, a, b), new, (network, state))
            return *kept, loss

        networks, state, loss = jax.vmap(learn)(critics.networks, critics.optimiser, targets)
        return Critics(networks, state), loss

    if config.minibatches == 1 or inputs.merged:
        # Merged inputs are so few that every gradient step can afford all of them.
        critics, losses = jax.lax.scan(lambda c, _: step(c, (inputs, targets)), critics, length=config.steps)
    else:
        samples = targets.shape[1]
        size = samples // config.minibatches
        orders = jax.vmap(lambda k: jax.random.permutation(k, samples))(jax.random.split(key, config.epochs))
        minibatches = orders[:, : size * config.minibatches].reshape(config.steps, size)
        critics, losses = jax.lax.scan(
            lambda c, rows: step(c, (Inputs(inputs.rows[rows]), targets[:, rows])), critics, minibatches
        )
    return critics, losses[-1]
