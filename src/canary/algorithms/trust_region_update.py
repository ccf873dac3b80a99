"""The update that Canary, CPO and CVaR-CPO share: they differ only in the `RiskConstraint` they
hand to it.

It reads as the paper's Algorithm 1: estimate advantages and cost statistics, construct the
constraint, step the policy, fit the critics.
"""

from collections.abc import Callable
from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray, PyTree

from canary.algorithms import gradient_signal
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
from canary.algorithms.gradient_signal import Signal
from canary.algorithms.inputs import Inputs, on_distinct_rows
from canary.algorithms.signals import reward_advantages
from canary.algorithms.step_report import Foresight, report_metrics, worst_case_metrics
from canary.algorithms.surrogates import Bound, Samples, Surrogates
from canary.algorithms.trust_region_step import Aim, TrustRegionConfig, trust_region_step
from canary.networks import critic_values, make_critics, make_policy
from canary.numerics.advantages import centred, standardised
from canary.numerics.moments import EpisodeWindow, lost_share, mean_return
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
    """After it."""
    window: EpisodeWindow
    terms: Terms
    memory: PyTree
    """What the constraint remembers of the updates before."""


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
    worst_case: Callable[[Float[Array, "signal"]], Metrics] | None = None
    """Bounds on what the new policy may do, given the largest advantage of each signal under it, if
    any."""
    memory: PyTree = None


@dataclass(frozen=True)
class RiskConstraint:
    """What a method says about its risk: which critics it needs and what it makes of a batch."""

    critics: int
    """Scalar critics."""
    estimate: Callable[[Evidence], RiskEstimate]
    model: CriticModel = NO_MODEL
    """A critic of another kind; its predictions follow the values of the scalar ones."""
    memory: PyTree = None
    """What the constraint remembers at the start."""


class TrustRegionMemory(eqx.Module):
    """What is kept between updates beside policy and scalar critics."""

    model: PyTree
    risk: PyTree
    signal: Signal
    foresight: Foresight
    best_return: Float[Array, ""]
    """Best mean return so far; -inf before the first."""


@dataclass(frozen=True)
class Standing:
    """Where the recent episodes leave the policy."""

    ready: Bool[Array, ""]
    """Whether there are enough of them to step at all."""
    best_return: Float[Array, ""]
    """Best mean return so far."""
    lost: Float[Array, ""]
    """What share of it is gone."""


def standing(
    window: EpisodeWindow, best_before: Float[Array, ""], estimation: EstimationConfig
) -> Standing:
    """Compare the recent episodes with the best return before."""
    ready = window.total >= estimation.warmup_episodes
    returned = jnp.where(ready, mean_return(window, estimation.span), jnp.nan)
    best = jnp.fmax(best_before, returned)
    return Standing(ready, best, lost_share(returned, best))


def trust_region_algorithm(
    risk: RiskConstraint,
    task: Task,
    estimation: EstimationConfig,
    trust_region: TrustRegionConfig,
    critic: CriticConfig,
) -> Algorithm:
    """The trust-region method for one risk constraint."""
    optimiser = make_optimiser(critic.gradient_clip)
    critic_inputs = task.input_size + critic.time_feature

    def init(key: PRNGKeyArray) -> Learner:
        key_policy, key_critics, key_model = jax.random.split(key, 3)
        seen = task.input_size - (CostAccount.SIZE if estimation.observe_spent is False else 0)
        policy = make_policy(key_policy, seen, task.action_space, estimation.hidden)
        networks = make_critics(key_critics, 1 + risk.critics, critic_inputs, estimation.hidden)
        model = risk.model.init(key_model, critic_inputs)
        memory = TrustRegionMemory(
            model,
            risk.memory,
            gradient_signal.no_signal(),
            Foresight.nothing(),
            jnp.array(-jnp.inf),
        )
        return Learner(policy, init_critics(networks, optimiser), memory)

    def update(
        learner: Learner, rollout: Rollout, window: EpisodeWindow, terms: Terms, key: PRNGKeyArray
    ) -> tuple[Learner, Metrics]:
        memory: TrustRegionMemory = learner.extra
        seen, seen_next = critic_views(rollout, critic.time_feature)
        values = critic_values(learner.critics.networks, seen)
        next_values = critic_values(learner.critics.networks, seen_next)
        predicted, predicted_next = (risk.model.predict(memory.model, x) for x in (seen, seen_next))

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
                memory.risk,
            )
        )
        targets = jnp.concatenate([reward_target[None], estimate.targets])
        samples = flatten(rollout, reward_advantage, estimate)
        scale = surrogate_scale(trust_region, estimate.length, memory.signal)
        key_critics, key_model = jax.random.split(key)
        now = standing(window, memory.best_return, estimation)
        aim = Aim(trust_region.radius(terms.progress), trust_region.share(now.lost))

        def improve(inputs: Inputs):
            surrogates = Surrogates(
                learner.policy, inputs, inputs.evaluate(learner.policy), samples, estimate.bound, scale,
                trust_region.entropy * (1 - terms.progress), trust_region.price(terms.progress),
            )  # fmt: skip
            policy, step = trust_region_step(surrogates, aim, now.ready, trust_region)
            measured = gradient_signal.measure(surrogates, step, trust_region)
            metrics = report_metrics(surrogates, step) | {"signal_fraction": measured}
            if estimate.worst_case is not None:
                metrics |= worst_case_metrics(surrogates, policy, step, estimate.worst_case)
            return policy, memory.signal.averaged_with(measured), metrics

        def learn(inputs: Inputs):
            flat = targets.reshape(targets.shape[0], -1)
            fitted = fit_critics(
                learner.critics, optimiser, critic, inputs, flat, terms, key_critics
            )
            return fitted, risk.model.fit(
                memory.model, inputs, rollout, predicted_next, terms, key_model
            )

        rows = rollout.inputs.reshape(-1, task.input_size)
        if critic.time_feature:
            improved = on_distinct_rows(rows, task.merge_capacity, improve)
            fitted = learn(Inputs(seen.reshape(-1, critic_inputs)))
        else:
            improved, fitted = on_distinct_rows(
                rows, task.merge_capacity, lambda inputs: (improve(inputs), learn(inputs))
            )
        policy, signal, metrics = improved
        (critics, losses), (model, model_metrics) = fitted
        # A step's promise in true units, an episode's, whatever units the step was computed in.
        promise = metrics.pop("bound_promise") * estimate.length / scale
        foresight, compared = memory.foresight.compare(estimate.metrics["batch_bound"], promise)
        metrics["return_lost"] = now.lost
        metrics |= critic_metrics(losses, targets) | model_metrics | estimate.metrics | compared
        kept = TrustRegionMemory(model, estimate.memory, signal, foresight, now.best_return)
        return Learner(policy, critics, kept), metrics

    return Algorithm(init, update)


def surrogate_scale(
    config: TrustRegionConfig, length: Float[Array, ""], signal: Signal
) -> Float[Array, ""]:
    """What a per-step mean is multiplied by; see `TrustRegionConfig.surrogate_scale`."""
    match config.surrogate_scale:
        case "step":
            return jnp.ones(())
        case "episode":
            return length
        case "signal":
            return jnp.maximum(length * signal.share, 1)  # never less than `step`


def critic_views(rollout: Rollout, with_time: bool) -> tuple[Array, Array]:
    """What critics see of each step and of the state after it."""
    if not with_time:
        return rollout.inputs, rollout.next_inputs
    return (
        jnp.concatenate([rollout.inputs, rollout.elapsed[..., None]], -1),
        jnp.concatenate([rollout.next_inputs, rollout.next_elapsed[..., None]], -1),
    )


def flatten(
    rollout: Rollout, reward_advantage: Float[Array, "time env"], estimate: RiskEstimate
) -> Samples:
    """The reward advantage standardised, cost-type advantages centred: they carry units."""
    weight = estimate.weight.reshape(-1)
    signals = estimate.advantages.reshape(estimate.advantages.shape[0], -1)
    every_other = jnp.arange(rollout.discount.shape[1]) % 2 == 0
    return Samples(
        action=rollout.action.reshape(-1, *rollout.action.shape[2:]),
        reward_advantage=standardised(reward_advantage.reshape(-1)),
        cost_advantages=jax.vmap(centred, in_axes=(0, None))(signals, weight),
        weight=weight,
        in_half=jnp.broadcast_to(every_other, rollout.discount.shape).reshape(-1),
    )
