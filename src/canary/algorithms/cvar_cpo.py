"""CVaR-CPO: CPO's machinery on a CVaR constraint, with a distributional cost critic.

    maximise J(pi)  subject to  CVaR_eps(C) = min_eta eta + E[(C - eta)+] / eps <= l

(paper eq. rockafellar; after Zhang et al., "CVaR-Constrained Policy Optimization"). The minimiser
is eta = VaR_eps(C), and by the envelope theorem the gradient may hold it fixed. With y_t the cost
spent so far and q_i(x) quantiles of the remaining cost,
V^h(x_t) = mean_i (y_t + g_t q_i(x_t) - eta)+ estimates E[(C - eta)+ | x_t]. GAE on V^h gives the
advantage of the tail excess; Z^h is its surrogate change. In units of the limit:

    L = eta + E[(C - eta)+] / eps - 1 + Z^h / eps

The critic

    q_i(x) = softplus(d) + softplus(k) * sum_{j <= i} softmax(phi)_j,      (d, k, phi) = network(x)

estimates the quantile of level (i + 1/2) / N of the remaining cost. It increases with i by
construction and is never negative. It learns by quantile regression from samples of the TD(lambda)
mixture of distributional returns, which is c_t at the end of an episode:

    G_t = c_t + gamma_c * (G_{t+1} with probability lambda, else a sampled quantile of x_{t+1})
"""

from dataclasses import dataclass, field
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax.typing import ArrayLike
from jaxtyping import Array, Float, PRNGKeyArray

from canary.algorithms.advantages import Batch, cost_advantages, spent_after, tail_advantages
from canary.algorithms.base import Algorithm, EstimationConfig, Task
from canary.algorithms.critics import (
    CriticConfig,
    CriticModel,
    FitBatch,
    guarded_step,
    make_optimiser,
    over_minibatches,
)
from canary.algorithms.inputs import Inputs
from canary.algorithms.trust_region import (
    RiskConstraint,
    RiskEstimate,
    TrustRegionSettings,
    trust_region_algorithm,
)
from canary.constraints import Kind
from canary.networks import MLP, make_mlp
from canary.numerics.costs import cost_moments, episode_metrics, in_limits, recent
from canary.numerics.risk import value_at_risk
from canary.types import Metrics, Rollout, Terms
from canary.values import Count, Layers, Settings

START = -3.0  # bias of d and k: the first predictions are near 0, softplus(-3) = 0.05
HUBER = 0.01  # half-width, in limits, of the quadratic part of the loss


@dataclass(frozen=True, kw_only=True)
class QuantileConfig(Settings):
    """Settings of the quantile critic; learning rate, passes and gradient clip are those of
    `critic`."""

    hidden: Layers = (64, 64)
    """Units of the quantile critic's hidden tanh layers."""
    quantiles: Count = 128
    """Number of quantiles per input, N."""
    samples: Count = 32
    """Sampled returns per step that the quantile critic learns from."""


@dataclass(frozen=True, kw_only=True)
class CVaRCPOConfig(TrustRegionSettings):
    """Settings of CVaR-CPO; the defaults are the paper's where it states them."""

    distribution: QuantileConfig = field(default_factory=QuantileConfig)

    # CVaR_eps(C) <= limit implies P(C > limit) <= eps.
    serves: ClassVar[tuple[Kind, ...]] = ("chance", "cvar")

    def make(self, task: Task) -> Algorithm:
        model = quantile_critic(self.distribution, self.critic, self.estimation)
        risk = RiskConstraint(critics=0, estimate=cvar_constraint(self), model=model)
        return trust_region_algorithm(risk, task, self)


def cvar_constraint(config: CVaRCPOConfig):
    """CVaR_epsilon(C) - limit <= 0, in units of the limit."""
    episodes, decay = config.estimation.window, config.estimation.gae_lambda

    def estimate(batch: Batch, terms: Terms) -> RiskEstimate:
        rollout, window = batch.rollout, batch.window
        moments = cost_moments(window, episodes, terms.limit)
        costs, valid = in_limits(window.cost, terms.limit), recent(window, episodes)
        totals = rollout.spent + rollout.discount * batch.values
        eta = tail_threshold(costs, valid, totals, terms.epsilon)
        excess = jnp.sum(jnp.maximum(costs - eta, 0) * valid) / moments.count
        value = eta + excess / terms.epsilon - 1

        gamma = config.estimation.cost_discount
        next_totals = spent_after(rollout) + gamma * rollout.discount * batch.next_values
        tail, next_tail = (jnp.maximum(total - eta, 0).mean(0) for total in (totals, next_totals))
        advantage = tail_advantages(rollout, tail, next_tail, eta, decay)
        # The limit is exceeded, but no quantile and no new episode lies above eta.
        helpless = (value >= 0) & jnp.all(advantage == 0)
        advantage = jnp.where(helpless, worst_episodes(rollout, eta, moments.mean), advantage)
        return RiskEstimate(
            advantages=advantage[None],
            targets=jnp.zeros((0, *rollout.cost.shape)),
            # The tail excess is of the whole cost C, which is discounted already: no weights.
            bound=lambda change: value + change / terms.epsilon,
            metrics=episode_metrics(window, episodes, terms.limit)
            | {"eta": eta * terms.limit, "cvar": (value + 1) * terms.limit},
        )

    return estimate


def tail_threshold(
    costs: Float[Array, "ring"],
    valid: Array,
    totals: Float[Array, "quantile time env"],
    epsilon: ArrayLike,
) -> Float[Array, ""]:
    """VaR_epsilon of the recent episodes if there are at least 1 / epsilon of them; else
    VaR_epsilon of the critic's predictions of C, clipped to the range of those episodes.

    Any threshold gives an upper bound of CVaR, so an error here is on the safe side.
    """

    def of_predictions() -> Float[Array, ""]:
        lowest = jnp.where(valid, costs, jnp.inf).min()
        highest = jnp.where(valid, costs, -jnp.inf).max()
        return jnp.clip(value_at_risk(totals.reshape(-1), epsilon), lowest, highest)

    enough = jnp.sum(valid) * epsilon >= 1 - 1e-6
    return jax.lax.cond(enough, lambda: value_at_risk(costs, epsilon, valid), of_predictions)


def worst_episodes(
    rollout: Rollout, threshold: Float[Array, ""], mean: Float[Array, ""]
) -> Float[Array, "time env"]:
    """C - mean at every step of an episode that ends in this batch with C >= threshold, else 0."""
    total, zero = spent_after(rollout), jnp.zeros_like(rollout.cost)
    signal = (total - mean) * (rollout.done & (total >= threshold))
    return cost_advantages(rollout, signal, zero, zero, discount=1.0, decay=1.0)[0]


class QuantileState(eqx.Module):
    network: MLP
    optimiser: optax.OptState


def quantile_critic(
    config: QuantileConfig, critic: CriticConfig, estimation: EstimationConfig
) -> CriticModel:
    """The quantile critic for the trust-region engine."""
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

        def step(state: QuantileState, batch: FitBatch):
            x, target, rate = batch

            def predicted(network: MLP) -> Float[Array, "row quantile"]:
                return x.gather(quantiles(network(x.rows)))

            prediction, pull = jax.vjp(predicted, state.network)
            slope = quantile_slope(prediction, target, HUBER)
            (gradient,) = pull(slope / slope.size)
            moved = guarded_step(optimiser, rate, state.network, gradient, state.optimiser)
            # The mean slope of quantile i is P(return < q_i) minus its level: 0 if calibrated.
            return QuantileState(*moved), jnp.abs(slope.mean(0)).mean()

        state, errors = over_minibatches(
            step, state, critic, inputs, targets.reshape(config.samples, -1), terms, key_order
        )
        return state, {"quantile_error": errors[-1]}

    return CriticModel(init, predict, fit)


def quantiles(output: Float[Array, "*batch output"]) -> Float[Array, "*batch quantile"]:
    """The increasing head: an offset plus cumulative shares of a spread."""
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
    """Samples of the TD(lambda) mixture of the remaining cost at every step. Levels are stratified,
    one from each of `samples` equal strata, which covers the tail evenly."""
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
    huber). Summed target by target: autodiff would store an array of all pairs."""
    tau = levels(prediction.shape[1])

    def add(total: Float[Array, "row quantile"], one: Float[Array, "row"]):
        above = jnp.clip((prediction - one[:, None]) / huber, -1, 1)
        return total + above * jnp.where(above > 0, 1 - tau, tau), None

    total, _ = jax.lax.scan(add, jnp.zeros_like(prediction), target)
    return total / target.shape[0]
