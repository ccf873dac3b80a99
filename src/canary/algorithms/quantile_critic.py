"""The distributional cost critic of CVaR-CPO: quantiles of the cost still to come.

    q_i(x) = softplus(d) + softplus(k) * sum_{j <= i} softmax(phi)_j,      (d, k, phi) = network(x)

estimates the quantile of level (i + 1/2) / N of R = sum_{k >= t} gamma_c^(k-t) c_k given x_t:
increasing in i by construction, never negative. It learns from samples of the TD(lambda) mixture of
distributional returns,

    G_t = c_t + gamma_c * (G_{t+1} with probability lambda, else a sampled quantile of x_{t+1}),

just c_t at the end, by quantile regression with a loss that is quadratic within `huber` of its
kink.
"""

from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, PRNGKeyArray

from canary.algorithms.base import EstimationConfig
from canary.algorithms.critics import (
    Batch,
    CriticConfig,
    CriticModel,
    guarded_step,
    learning_rates,
    make_optimiser,
    over_minibatches,
)
from canary.algorithms.inputs import Inputs
from canary.networks import MLP, make_mlp
from canary.types import Metrics, Rollout, Terms
from canary.values import Count, Layers, Settings

START = -3.0  # bias of d and k: the first predictions are near 0, softplus(-3) = 0.05


HUBER = 0.01  # half-width, in limits, of the quadratic part of the loss


@dataclass(frozen=True, kw_only=True)
class QuantileConfig(Settings):
    """Settings of the quantile critic; rate, passes and gradient clip are those of the other
    critics."""

    hidden: Layers = (64, 64)
    """Units of its hidden tanh layers."""
    quantiles: Count = 128
    """Quantiles per input, N."""
    samples: Count = 32
    """Sampled returns per step that it learns from."""


class QuantileState(eqx.Module):
    network: MLP
    optimiser: optax.OptState


def quantile_critic(
    config: QuantileConfig, critic: CriticConfig, estimation: EstimationConfig
) -> CriticModel:
    """The critic as the shared trust-region update wants it."""
    optimiser = make_optimiser(critic.gradient_clip)

    def init(key: PRNGKeyArray, input_size: int) -> QuantileState:
        network = make_mlp(key, (input_size, *config.hidden, 2 + config.quantiles), head_scale=0.01)
        network = eqx.tree_at(lambda n: n.biases[-1], network, network.biases[-1].at[:2].set(START))
        return QuantileState(network, optimiser.init(network))  # ty: ignore

    def predict(
        state: QuantileState, x: Float[Array, "*batch input"]
    ) -> Float[Array, "quantile *batch"]:
        return jnp.moveaxis(quantiles(state.network(x)), -1, 0)

    def fit(
        state: QuantileState,
        inputs: Inputs,
        rollout: Rollout,
        after: Float[Array, "quantile time env"],
        terms: Terms,
        key: PRNGKeyArray,
    ) -> tuple[QuantileState, Metrics]:
        key_sample, key_order = jax.random.split(key)
        targets = sampled_returns(rollout, after, config.samples, estimation, key_sample)

        def step(state: QuantileState, batch: Batch):
            x, target, rate = batch

            def predicted(network: MLP) -> Float[Array, "row quantile"]:
                return x.evaluate(lambda rows: quantiles(network(rows)))

            prediction, pull = jax.vjp(predicted, state.network)
            slope = quantile_slope(prediction, target, HUBER)
            (gradient,) = pull(slope / slope.size)
            moved = guarded_step(optimiser, rate, state.network, gradient, state.optimiser)
            # The mean slope of quantile i is P(return < q_i) minus its level: 0 if it is
            # calibrated.
            return QuantileState(*moved), jnp.abs(slope.mean(0)).mean()

        state, errors = over_minibatches(
            step, state, critic, inputs, targets.reshape(config.samples, -1),
            learning_rates(critic, terms), key_order,
        )  # fmt: skip
        return state, {"quantile_error": errors[-1]}

    return CriticModel(init, predict, fit)


def quantiles(output: Float[Array, "*batch output"]) -> Float[Array, "*batch quantile"]:
    """The increasing head: an offset, and a spread divided among the gaps."""
    shares = jnp.cumsum(jax.nn.softmax(output[..., 2:]), -1)
    return jax.nn.softplus(output[..., :1]) + jax.nn.softplus(output[..., 1:2]) * shares


def levels(count: int) -> Float[Array, "quantile"]:
    return (jnp.arange(count) + 0.5) / count


def sampled_returns(
    rollout: Rollout,
    after: Float[Array, "quantile time env"],
    samples: int,
    estimation: EstimationConfig,
    key: PRNGKeyArray,
) -> Float[Array, "target time env"]:
    """Samples of the TD(lambda) mixture distribution of the cost to come at every step.

    One-step targets alone would carry information back by one step per update. Levels are drawn one
    from each of `samples` equal strata, which leaves less of the tail to chance than independent
    draws.
    """
    count, length, width = after.shape
    key_level, key_go_on = jax.random.split(key)
    strata = jnp.arange(samples)[:, None, None] + jax.random.uniform(
        key_level, (samples, length, width)
    )
    index = jnp.minimum((strata * (count / samples)).astype(jnp.int32), count - 1)
    drawn = jnp.take_along_axis(after, index, 0)
    go_on = jax.random.bernoulli(key_go_on, estimation.gae_lambda, drawn.shape)

    def backwards(later: Float[Array, "target env"], step):
        cost, done, bootstrap, goes_on = step
        value = cost + estimation.cost_discount * ~done * jnp.where(goes_on, later, bootstrap)
        return value, value

    by_time = (rollout.cost, rollout.done, jnp.moveaxis(drawn, 1, 0), jnp.moveaxis(go_on, 1, 0))
    _, returns = jax.lax.scan(backwards, drawn[:, -1], by_time, reverse=True)
    return jnp.moveaxis(returns, 0, 1)


def quantile_slope(
    prediction: Float[Array, "row quantile"], target: Float[Array, "target row"], huber: float
) -> Float[Array, "row quantile"]:
    """Derivative by q_i of the mean over targets T of |tau_i - 1[T < q_i]| * Huber((T - q_i) /
    huber).

    Written out, and summed target by target: differentiating the loss would keep an array of all
    pairs.
    """
    tau = levels(prediction.shape[1])

    def add(total: Float[Array, "row quantile"], one: Float[Array, "row"]):
        above = jnp.clip((prediction - one[:, None]) / huber, -1, 1)
        return total + above * jnp.where(above > 0, 1 - tau, tau), None

    total, _ = jax.lax.scan(add, jnp.zeros_like(prediction), target)
    return total / target.shape[0]
