"""The plain way to write the same update, as a yardstick for speed: nothing here is used for
training.

It has what one writes first: Hessian-vector products by differentiating the mean KL divergence
twice, conjugate gradients one right-hand side at a time with the products recomputed afterwards, a
full-batch pass per critic and epoch. Seeds are vectorised with `vmap`, as is usual in JAX. Its
steps agree with those of the library (tests/test_reference.py).
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, PRNGKeyArray

from canary.algorithms.advantages import batch_of
from canary.algorithms.base import Algorithm, Learner, Task
from canary.algorithms.cantelli_cpo import CantelliCPOConfig, cantelli_constraint
from canary.algorithms.critics import Critics, init_critics, learning_rates, make_optimiser
from canary.algorithms.trust_region import flatten
from canary.algorithms.trust_region_step import Levels, Samples, search
from canary.constraints import Tier
from canary.networks import Policy, make_critics, make_policy
from canary.numerics.costs import EpisodeWindow, cost_moments
from canary.numerics.trust_region import solve
from canary.types import Metrics, Rollout, Terms

Vector = Float[Array, "params"]


def make_reference(config: CantelliCPOConfig, task: Task) -> Algorithm:
    estimate_risk = cantelli_constraint(config)
    optimiser = make_optimiser(config.critic.gradient_clip)

    def init(key: PRNGKeyArray) -> Learner:
        key_policy, key_critics, _ = jax.random.split(key, 3)
        policy = make_policy(
            key_policy, task.input_size, task.action_space, config.estimation.hidden
        )
        networks = make_critics(key_critics, 3, task.input_size, config.estimation.hidden)
        return Learner(policy, init_critics(networks, optimiser))

    def update(
        learner: Learner, rollout: Rollout, window: EpisodeWindow, terms: Terms, key: PRNGKeyArray
    ) -> tuple[Learner, Metrics]:
        del key
        batch = batch_of(learner.critics.networks, rollout, window, config.estimation)
        advantage, target = batch.reward
        own = replace(batch, values=batch.values[1:], next_values=batch.next_values[1:])
        risk = estimate_risk(own, terms)
        length = cost_moments(window, config.estimation.window, terms.limit).length
        rows = rollout.inputs.reshape(-1, task.input_size)
        ready = window.total >= config.estimation.warmup_episodes
        samples = flatten(rollout, advantage, risk)

        def bound(change: Float[Array, "signal"]) -> Float[Array, "constraint"]:
            return risk.bound(length * change)  # in episode units

        policy = plain_step(learner.policy, rows, samples, bound, ready, config)
        targets = jnp.concatenate([target[None], risk.targets]).reshape(3, -1)
        rates = learning_rates(config.critic, terms)
        critics = plain_fit(learner.critics, optimiser, rows, targets, rates)
        metrics: Metrics = {"bound_value": risk.bound(jnp.zeros(2))[0]}
        return Learner(policy, critics), metrics

    return Algorithm(init, update)


def plain_step(
    policy: Policy,
    rows: Float[Array, "sample input"],
    samples: Samples,
    bound: Callable[[Array], Array],
    ready: Array,
    config: CantelliCPOConfig,
) -> Policy:
    settings = config.trust_region
    start, unravel = ravel_pytree(policy)
    old = policy(rows)
    old_log_prob = old.log_prob(samples.action)

    def ratio(theta: Vector) -> Float[Array, "sample"]:
        return jnp.exp(unravel(theta)(rows).log_prob(samples.action) - old_log_prob)

    def reward(theta: Vector) -> Float[Array, ""]:
        return (ratio(theta) * samples.reward_advantage).mean()

    def constraints(theta: Vector) -> Float[Array, "constraint"]:
        return bound((samples.cost_advantages * samples.weight * ratio(theta)).mean(1))

    def mean_kl(theta: Vector) -> Float[Array, ""]:
        return unravel(theta)(rows).kl_from(old).mean()

    def product(vector: Vector) -> Vector:
        return jax.jvp(jax.grad(mean_kl), (start,), (vector,))[1] + settings.damping * vector

    gradients = [
        jax.grad(reward)(start),
        jax.grad(lambda theta: constraints(theta)[0])(start),
        jax.grad(lambda theta: constraints(theta)[1])(start),
    ]
    natural = [
        plain_conjugate_gradient(product, gradient, settings.cg_iterations)
        for gradient in gradients
    ]
    images = [product(vector) for vector in natural]
    gram = jnp.array([[x @ image for image in images] for x in natural])

    def levels(theta: Vector) -> Levels:
        return Levels(reward(theta), constraints(theta), mean_kl(theta))

    before = levels(start)
    solution = solve(0.5 * (gram + gram.T), before.constraints, settings.target_kl)
    tier = jnp.where(ready, solution.tier, Tier.NO_STEP)
    step = solution.coefficients @ jnp.stack(natural)
    return unravel(search(levels, start, before, step, tier, settings).theta)


def plain_conjugate_gradient(
    product: Callable[[Vector], Vector], rhs: Vector, iterations: int
) -> Vector:
    def advance(_: int, state: tuple[Vector, Vector, Vector]):
        solution, residual, direction = state
        image = product(direction)
        length = (residual @ residual) / (direction @ image + 1e-30)
        solution, new = solution + length * direction, residual - length * image
        direction = new + (new @ new) / (residual @ residual + 1e-30) * direction
        return solution, new, direction

    return jax.lax.fori_loop(0, iterations, advance, (jnp.zeros_like(rhs), rhs, rhs))[0]


def plain_fit(
    critics: Critics,
    optimiser: optax.GradientTransformation,
    rows: Float[Array, "sample input"],
    targets: Float[Array, "critic sample"],
    rates: Float[Array, "epoch"],
) -> Critics:
    def learn(network: Any, state: optax.OptState, target: Float[Array, "sample"]):
        def epoch(carry: tuple, rate: Float[Array, ""]):
            network, state = carry
            gradient = jax.grad(lambda net: ((net(rows)[:, 0] - target) ** 2).mean())(network)
            change, state = optimiser.update(gradient, state)
            moved = jax.tree.map(lambda leaf, delta: leaf - rate * delta, network, change)
            return (moved, state), None

        return jax.lax.scan(epoch, (network, state), rates)[0]

    parts = [jax.tree.map(lambda leaf, i=i: leaf[i], critics) for i in range(3)]
    fitted = [learn(one.networks, one.optimiser, targets[i]) for i, one in enumerate(parts)]
    return Critics(*jax.tree.map(lambda *leaves: jnp.stack(leaves), *fitted))
