"""The update that Canary, CPO and CVaR-CPO share: they differ only in the `RiskConstraint` they hand to it.

It reads as the paper's Algorithm 1: estimate advantages and cost statistics, construct the constraint, step
the policy, fit the critics.
"""

from collections.abc import Callable
from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

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
from canary.algorithms.trust_region_step import Samples, TrustRegionConfig, report_metrics, trust_region_step
from canary.networks import Policy, critic_values, make_critics, make_policy
from canary.numerics.advantages import centred, standardised
from canary.numerics.moments import EpisodeWindow, Span, mean_return
from canary.numerics.restoration import lost_share
from canary.rollout import Augmentation
from canary.types import Metrics, Rollout

Values = Float[Array, "critic time env"]

SIGNAL_MEMORY = 0.9  # of the average over updates; single cosines are mostly noise themselves


class TrustRegionExtra(eqx.Module):
    """What is kept between updates beside the networks: a method's own critic, and the last step to compare with."""

    model: PyTree
    direction: Float[Array, "params"]
    """Natural gradient of the constraint at the last update, of unit length."""
    value: Float[Array, ""]
    """Value of the constraint at the last update; NaN before the first."""
    updates: Int[Array, ""]
    """How many there were."""
    signal: Float[Array, ""]
    """Share of the constraint's gradient that is signal, averaged over updates."""
    best_return: Float[Array, ""]
    """Best mean return so far; -inf before the first."""


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
    """Bounds on what the new policy may do, given the largest advantage of each signal under it, if any."""
    weight: Float[Array, "time env"] | None = None
    """Weight of each step in the surrogates; None: the cost discount g_t."""


@dataclass(frozen=True)
class RiskConstraint:
    """What a method says about its risk: which critics it needs and what it makes of a batch."""

    critics: int
    """Scalar critics."""
    estimate: Callable[[Rollout, Values, Values, EpisodeWindow], RiskEstimate]
    """Of a batch, the values of the critics at each step and after it, and the recent episodes."""
    model: CriticModel = NO_MODEL
    """A critic of another kind; its predictions follow the values of the scalar ones."""


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
        seen = task.input_size - (Augmentation.SIZE if estimation.observe_spent is False else 0)
        policy = make_policy(key_policy, seen, task.action_space, estimation.hidden)
        networks = make_critics(key_critics, 1 + risk.critics, critic_inputs, estimation.hidden)
        model = risk.model.init(jax.random.fold_in(key, 2), critic_inputs)
        nothing = jnp.zeros_like(ravel_pytree(policy)[0])
        extra = TrustRegionExtra(
            model, direction=nothing, value=jnp.array(jnp.nan), updates=jnp.zeros((), jnp.int32),
            signal=jnp.zeros(()), best_return=jnp.array(-jnp.inf),
        )  # fmt: skip
        return Learner(policy, init_critics(networks, optimiser), extra)

    def update(
        learner: Learner, rollout: Rollout, window: EpisodeWindow, key: PRNGKeyArray
    ) -> tuple[Learner, Metrics]:
        seen, seen_next = critic_views(rollout, critic.time_feature)
        values = critic_values(learner.critics.networks, seen)
        next_values = critic_values(learner.critics.networks, seen_next)

        reward_advantage = reward_advantages(rollout, values[0], next_values[0], estimation)
        predicted, predicted_next = (risk.model.predict(learner.extra.model, x) for x in (seen, seen_next))
        estimate = risk.estimate(
            rollout,
            jnp.concatenate([values[1:], predicted]),
            jnp.concatenate([next_values[1:], predicted_next]),
            window,
        )
        targets = jnp.concatenate([(reward_advantage + values[0])[None], estimate.targets])

        samples = flatten(rollout, reward_advantage, estimate)
        scale = surrogate_scale(trust_region, estimate.length, learner.extra.signal)
        ready = window.total >= estimation.warmup_episodes
        # Of this batch alone where it can be: a return that falls is seen in time.
        returned = jnp.where(ready, mean_return(window, Span(estimation.window)), jnp.nan)
        best = jnp.fmax(learner.extra.best_return, returned)
        lost = lost_share(returned, best)

        def improve(inputs: Inputs):
            return trust_region_step(
                learner.policy, inputs, samples, estimate.bound, scale, ready, trust_region,
                learner.extra.direction, learner.extra.updates / task.updates, lost,
            )  # fmt: skip

        def learn(inputs: Inputs):
            flat = targets.reshape(targets.shape[0], -1)
            fitted = fit_critics(learner.critics, optimiser, critic, inputs, flat, key)
            key_model = jax.random.fold_in(key, 1)
            return fitted, risk.model.fit(learner.extra.model, inputs, rollout, predicted_next, key_model)

        rows = rollout.inputs.reshape(-1, task.input_size)
        if critic.time_feature:
            policy, report = on_distinct_rows(rows, task.merge_capacity, improve)
            fitted = learn(Inputs(seen.reshape(-1, critic_inputs)))
        else:
            (policy, report), fitted = on_distinct_rows(
                rows, task.merge_capacity, lambda inputs: (improve(inputs), learn(inputs))
            )
        (critics, losses), (model, model_metrics) = fitted
        metrics = report_metrics(report) | critic_metrics(losses, targets)
        metrics |= model_metrics | estimate.metrics
        is_first = jnp.isnan(learner.extra.value)
        metrics |= {
            "return_lost": lost,
            # In true units, an episode's: `step` surrogates are smaller by its length.
            "bound_predicted_change": report.predicted[0] * estimate.length / scale,
            "bound_realised_change": report.values[0]
            - jnp.where(is_first, report.values[0], learner.extra.value),
        }
        if estimate.worst_case is not None:
            metrics |= estimate.worst_case(largest_advantages(learner.policy, policy, rows, samples))
        extra = TrustRegionExtra(
            model, report.direction, report.values[0], learner.extra.updates + 1,
            SIGNAL_MEMORY * learner.extra.signal + (1 - SIGNAL_MEMORY) * jnp.nan_to_num(report.signal),
            best,
        )  # fmt: skip
        return Learner(policy, critics, extra), metrics

    return Algorithm(init, update)


def surrogate_scale(
    config: TrustRegionConfig, length: Float[Array, ""], signal: Float[Array, ""]
) -> Float[Array, ""]:
    """What a per-step mean is multiplied by; see `TrustRegionConfig.surrogate_scale`."""
    match config.surrogate_scale:
        case "step":
            return jnp.ones(())
        case "episode":
            return length
        case "signal":
            return jnp.maximum(length * jnp.minimum(signal, 1), 1)  # never less than `step`


def critic_views(rollout: Rollout, with_time: bool) -> tuple[Array, Array]:
    """What critics see of each step and of the state after it."""
    if not with_time:
        return rollout.inputs, rollout.next_inputs
    return (
        jnp.concatenate([rollout.inputs, rollout.elapsed[..., None]], -1),
        jnp.concatenate([rollout.next_inputs, rollout.next_elapsed[..., None]], -1),
    )


def flatten(rollout: Rollout, reward_advantage: Float[Array, "time env"], estimate: RiskEstimate) -> Samples:
    """The reward advantage standardised, cost-type advantages centred: they carry units."""
    weight = (rollout.discount if estimate.weight is None else estimate.weight).reshape(-1)
    signals = estimate.advantages.reshape(estimate.advantages.shape[0], -1)
    return Samples(
        action=rollout.action.reshape(-1, *rollout.action.shape[2:]),
        reward_advantage=standardised(reward_advantage.reshape(-1)),
        cost_advantages=jax.vmap(centred, in_axes=(0, None))(signals, weight),
        weight=weight,
        half=jnp.broadcast_to(jnp.arange(rollout.discount.shape[1]) % 2 == 0, rollout.discount.shape).reshape(
            -1
        ),
    )


def largest_advantages(
    old: Policy, new: Policy, rows: Float[Array, "sample input"], samples: Samples
) -> Float[Array, "signal"]:
    """max over the batch of |ratio A|: stands in for the theorem's alpha = max_x |E_{a ~ new} A(x, a)|."""
    ratio = jnp.exp(new(rows).log_prob(samples.action) - old(rows).log_prob(samples.action))
    return jnp.abs(ratio * samples.cost_advantages).max(1)
