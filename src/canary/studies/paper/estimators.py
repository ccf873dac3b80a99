"""The noise of the algorithms' constraint estimates on IcyLake: GAE with fitted critics, for a
fixed policy.

The policy is a network that imitates a soft policy of the lake. It does not see the spent cost, so
one network serves all limits. The algorithm's update fits critics to it; the updated policy is
discarded. Then the constraint's value and gradient are computed on many batches, as in an update
(eqs. taylor-c, taylor-b).
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, PRNGKeyArray

from canary.algorithms.advantages import Batch, spent_after
from canary.algorithms.base import Algorithm, Learner, Task
from canary.algorithms.canary import CanaryConfig, cantelli_penalty
from canary.algorithms.cantelli_cpo import CantelliCPOConfig, cantelli_constraint
from canary.algorithms.clipped import ClippedExtra
from canary.algorithms.cpo import CPOConfig, expectation_constraint
from canary.algorithms.critics import make_optimiser
from canary.algorithms.cvar_cpo import CVaRCPOConfig, cvar_constraint, quantile_critic
from canary.algorithms.trust_region import (
    RiskConstraint,
    RiskEstimate,
    flatten,
    trust_region_algorithm,
)
from canary.environments.icy_lake import IcyLake
from canary.networks import CategoricalPolicy, critic_values, make_policy
from canary.numerics.costs import (
    EpisodeWindow,
    cost_moments,
    empty_window,
    in_limits,
    record_episodes,
    shaped,
)
from canary.rollout import CostAccount, Lane, collect, start_lanes
from canary.types import Rollout, Terms

LAKE = IcyLake()
ENVIRONMENTS, LENGTH = 20, 200
FITTING, MEASURING = 30, 200  # batches
HIDDEN = (64, 64)

Estimate = tuple[Array, Array]
"""Gives the value of a constraint on a batch, and the weight of each step in its gradient
mean(weight * grad log pi(a | x))."""
Measure = Callable[[Learner, Rollout, EpisodeWindow, Terms], Estimate]


def estimator(constraint: str, dead_zone: float | None, lake: IcyLake) -> tuple[Algorithm, Measure]:
    """The algorithm whose update fits the critics, and its estimate of the constraint.

    `indicator` is CPO's, `cvar` CVaR-CPO's, `cantelli` the paper's Canary's, on the shaped cost if
    there is a dead zone, `whole` the same with lambda = 1, `priced` Canary's.
    """
    size = lake.observation_size + CostAccount.SIZE
    task = Task(input_size=size, action_space=lake.action_space, horizon=lake.horizon)
    if constraint == "priced":
        settings = CanaryConfig(dead_zone=dead_zone or 0.0)
        estimation = replace(settings.estimation, hidden=HIDDEN, window=1, budget_layer=True)
        settings = replace(settings, estimation=estimation)
        return settings.make(task), partial(_of_price, settings, lake.horizon)
    if constraint == "indicator":
        config = _small(CPOConfig())
        risk = RiskConstraint(critics=1, estimate=expectation_constraint(config))
    elif constraint == "cvar":
        config = _small(CVaRCPOConfig())
        model = quantile_critic(config.distribution, config.critic, config.estimation)
        risk = RiskConstraint(critics=0, estimate=cvar_constraint(config), model=model)
    else:
        config = _small(CantelliCPOConfig())
        if constraint == "whole":
            config = replace(config, estimation=replace(config.estimation, gae_lambda=1.0))
        estimate = cantelli_constraint(config)
        if dead_zone is not None:
            estimate = _on_shaped(estimate, dead_zone)
        risk = RiskConstraint(critics=2, estimate=estimate)
    return trust_region_algorithm(risk, task, config), partial(_of_trust_region, risk)


def _small(config: Any) -> Any:
    """Networks, critics and batches of the `fast` preset, with cost statistics of one batch."""
    estimation = replace(config.estimation, hidden=HIDDEN, window=1)
    critic = replace(config.critic, epochs=4, minibatches=8)
    return replace(config, estimation=estimation, critic=critic)


def _with_policy(learner: Learner, policy: CategoricalPolicy) -> Learner:
    if isinstance(learner.extra, ClippedExtra):
        state = make_optimiser(1.0).init(cast(Any, policy))
        learner = eqx.tree_at(lambda one: one.extra.optimiser, learner, state)
    return eqx.tree_at(lambda one: one.policy, learner, policy)


def _on_shaped(
    estimate: Callable[[Batch, Terms], RiskEstimate], dead_zone: float
) -> Callable[[Batch, Terms], RiskEstimate]:
    """A constraint on X = phi_d(C / limit), as a cost with limit 1: a step costs phi(y') - phi(y)."""

    def of_shaped(batch: Batch, terms: Terms) -> RiskEstimate:
        rollout, window = batch.rollout, batch.window
        before, after = (shaped(y, dead_zone) for y in (rollout.spent, spent_after(rollout)))
        costs = shaped(in_limits(window.cost, terms.limit), dead_zone)
        own = replace(
            batch,
            rollout=eqx.tree_at(lambda r: (r.cost, r.spent), rollout, (after - before, before)),
            window=eqx.tree_at(lambda w: w.cost, window, costs),
        )
        return estimate(own, eqx.tree_at(lambda t: t.limit, terms, jnp.ones(())))

    return of_shaped


def _of_trust_region(
    risk: RiskConstraint, learner: Learner, rollout: Rollout, window: EpisodeWindow, terms: Terms
) -> Estimate:
    """The estimate as in an update of the trust region."""

    def values(x: Array) -> Array:
        scalar = critic_values(learner.critics.networks, x)[1:]  # the first is the reward critic
        return jnp.concatenate([scalar, risk.model.predict(learner.extra, x)])

    nothing = jnp.zeros_like(rollout.reward)
    seen = values(rollout.inputs), values(rollout.next_inputs)
    estimate = risk.estimate(Batch(rollout, (nothing, nothing), *seen, window), terms)
    samples = flatten(rollout, nothing, estimate)
    signals = samples.cost_advantages * samples.weight
    length = cost_moments(window, 1, terms.limit).length

    def bound(change: Array) -> Array:
        return estimate.bound(length * change)[0]

    value, slope = jax.value_and_grad(bound)(signals.mean(1))
    return value, (slope @ signals).reshape(nothing.shape)


def _of_price(
    config: CanaryConfig, horizon: int, learner: Learner, rollout: Rollout, window: EpisodeWindow,
    terms: Terms,
) -> Estimate:  # fmt: skip
    """The bound on P(C > limit) minus epsilon, and the weight w(x) A^c(x, a) of Canary's update."""
    networks, nothing = learner.critics.networks, jnp.zeros_like(rollout.reward)
    values, after = (critic_values(networks, x)[1:] for x in (rollout.inputs, rollout.next_inputs))
    batch = Batch(rollout, (nothing, nothing), values, after, window)
    found = cantelli_penalty(config, horizon).charge(batch, terms)
    return found.metrics["risk_bound"] - terms.epsilon, found.weight * found.advantage


def _gradient(policy: CategoricalPolicy, rollout: Rollout, weight: Array) -> Array:
    theta, policy_at = ravel_pytree(policy)

    def weighted(theta: Array) -> Array:
        return (weight * policy_at(theta)(rollout.inputs).log_prob(rollout.action)).mean()

    return jax.grad(weighted)(theta)


def imitate(
    chance: Float[np.ndarray, "state action"], key: PRNGKeyArray, steps: int = 3000
) -> CategoricalPolicy:
    """A network fitted to the action probabilities `chance` by descent on the KL divergence."""
    states = len(chance)
    policy = make_policy(key, states, LAKE.action_space, HIDDEN)
    assert isinstance(policy, CategoricalPolicy)
    optimiser = optax.adam(3e-3)
    target = jnp.asarray(chance)

    def loss(policy: CategoricalPolicy) -> Float[Array, ""]:
        return -(target * jax.nn.log_softmax(policy(jnp.eye(states)).logits)).sum(1).mean()

    def step(carry: Any, _: None) -> tuple[Any, None]:
        policy, state = carry
        updates, state = optimiser.update(jax.grad(loss)(policy), state)
        return (eqx.apply_updates(policy, updates), state), None

    (policy, _), _ = jax.lax.scan(step, (policy, optimiser.init(policy)), None, steps)  # pyrefly: ignore
    return policy


def batches(
    constraint: str, dead_zone: float | None, lake: IcyLake = LAKE
) -> Callable[..., dict[str, np.ndarray]]:
    """A function of (policy, limit, epsilon, seed) that gives value, gradient and episodes of every
    batch, with one compiled program."""
    algorithm, measured = estimator(constraint, dead_zone, lake)
    length = LENGTH * lake.horizon // LAKE.horizon  # about as many episodes on a longer lake

    def collected(policy: CategoricalPolicy, lanes: Lane, terms: Terms, key: PRNGKeyArray):
        account = CostAccount(terms.limit, 1.0)
        lanes, rollout, _ = collect(lake, account, policy, lanes, None, key, length)
        window = record_episodes(empty_window(ENVIRONMENTS * length), rollout.episodes)
        return lanes, rollout, window

    @jax.jit
    def run(policy: CategoricalPolicy, terms: Terms, key: PRNGKeyArray) -> dict[str, Array]:
        key_init, key_lanes, key_fit, key_measure = jax.random.split(key, 4)
        learner = _with_policy(algorithm.init(key_init), policy)
        lanes = start_lanes(lake, ENVIRONMENTS, key_lanes, stagger=True)

        def fit(carry: tuple[Learner, Lane], item: tuple[PRNGKeyArray, Array]):
            learner, lanes = carry
            key_rollout, key_update = jax.random.split(item[0])
            lanes, rollout, window = collected(policy, lanes, terms, key_rollout)
            now = eqx.tree_at(lambda t: t.iteration, terms, item[1])
            learner, _ = algorithm.update(learner, rollout, window, now, key_update)
            return (_with_policy(learner, policy), lanes), None

        def measure(lanes: Lane, key: PRNGKeyArray):
            lanes, rollout, window = collected(policy, lanes, terms, key)
            value, weight = measured(learner, rollout, window, terms)
            gradient = _gradient(policy, rollout, weight)
            return lanes, {"value": value, "gradient": gradient, "episodes": window.new}

        keys = jax.random.split(key_fit, FITTING), jnp.arange(FITTING)
        (learner, lanes), _ = jax.lax.scan(fit, (learner, lanes), keys)
        return jax.lax.scan(measure, lanes, jax.random.split(key_measure, MEASURING))[1]

    def found(
        policy: CategoricalPolicy, limit: float, epsilon: float, seed: int
    ) -> dict[str, np.ndarray]:
        terms = Terms(jnp.float32(limit), jnp.float32(epsilon), jnp.int32(FITTING), jnp.int32(0))
        return jax.tree.map(np.asarray, run(policy, terms, jax.random.key(seed)))

    return found
