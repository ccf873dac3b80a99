"""The noise of the algorithms' own constraint estimates: GAE with fitted critics, on a fixed policy.

The policy is a network that imitates a soft policy of the lake. It does not see the spent cost, so
one network serves all limits. The algorithm's own update fits critics to it; the new policy is
discarded. Then, over many batches, the constraint value and its gradient are computed as in an
update (eqs. taylor-c, taylor-b).
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, PRNGKeyArray

from canary.algorithms.base import Learner, Task
from canary.algorithms.canary import CanaryConfig, cantelli_constraint, make_canary
from canary.algorithms.cpo import CPOConfig, expectation_constraint, make_cpo
from canary.algorithms.cvar_cpo import CVaRCPOConfig, cvar_constraint, make_cvar_cpo
from canary.algorithms.inputs import Inputs
from canary.algorithms.quantile_critic import quantiles
from canary.algorithms.surrogates import Surrogates
from canary.algorithms.trust_region_update import Evidence, RiskEstimate, flatten
from canary.environments.icy_lake import IcyLake
from canary.networks import CategoricalPolicy, critic_values, make_policy
from canary.numerics.moments import empty_window, record_episodes
from canary.rollout import CostAccount, Lane, collect, start_lanes
from canary.types import Rollout, Terms

ENVIRONMENTS, LENGTH = 20, 200
FITTING, MEASURING = 30, 200  # batches
HIDDEN = (64, 64)


@dataclass(frozen=True)
class Estimator:
    """A constraint as its algorithm estimates it."""

    config: Any
    make: Callable[[Any, Task], Any]
    estimate: Callable[[Any], Callable[[Evidence], RiskEstimate]]
    values: Callable[[Learner, Array], Array]
    """The constraint's critics at given inputs."""


def scalar_values(learner: Learner, x: Array) -> Array:
    """The first critic is that of the reward."""
    return critic_values(learner.critics.networks, x)[1:]


def quantile_values(learner: Learner, x: Array) -> Array:
    return jnp.moveaxis(quantiles(learner.extra.model.network(x)), -1, 0)


def _small(config: Any) -> Any:
    """Networks, critics and batches of the `fast` preset; cost statistics of one batch alone."""
    estimation = replace(
        config.estimation, hidden=HIDDEN, window=1, window_batches=1, observe_spent=False
    )
    critic = replace(config.critic, epochs=4, minibatches=8)
    return replace(config, estimation=estimation, critic=critic)


def estimator(constraint: str, dead_zone: float | None) -> Estimator:
    """`indicator` is CPO's, `cvar` CVaR-CPO's, `cantelli` Canary's, shaped if there is a dead
    zone."""
    if constraint == "indicator":
        return Estimator(_small(CPOConfig()), make_cpo, expectation_constraint, scalar_values)
    if constraint == "cvar":
        return Estimator(_small(CVaRCPOConfig()), make_cvar_cpo, cvar_constraint, quantile_values)
    return Estimator(
        _small(CanaryConfig(dead_zone=dead_zone)), make_canary, cantelli_constraint, scalar_values
    )


def imitate(
    chance: Float[np.ndarray, "state action"], key: PRNGKeyArray, steps: int = 3000
) -> CategoricalPolicy:
    """A network whose action probabilities are `chance`, by descent on the KL divergence."""
    states = len(chance)
    policy = make_policy(key, states, IcyLake().action_space, HIDDEN)
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


class Batches:
    """Batches of a fixed policy for one estimator; one program serves all limits and seeds."""

    def __init__(self, estimator: Estimator, lake: IcyLake):
        self._lake, self._estimator = lake, estimator
        task = Task(
            input_size=lake.observation_size + CostAccount.SIZE, action_space=lake.action_space
        )
        self._algorithm = estimator.make(estimator.config, task)
        self._estimate = estimator.estimate(estimator.config)
        self._run = jax.jit(self._fit_and_measure)

    def __call__(
        self, policy: CategoricalPolicy, limit: float, epsilon: float, seed: int
    ) -> dict[str, np.ndarray]:
        """Value, gradient and episodes of every batch."""
        terms = Terms(jnp.float32(limit), jnp.float32(epsilon), jnp.int32(FITTING), jnp.int32(0))
        return jax.tree.map(np.asarray, self._run(policy, terms, jax.random.key(seed)))

    def _fit_and_measure(
        self, policy: CategoricalPolicy, terms: Terms, key: PRNGKeyArray
    ) -> dict[str, Array]:
        key_init, key_lanes, key_fit, key_measure = jax.random.split(key, 4)
        learner = eqx.tree_at(lambda one: one.policy, self._algorithm.init(key_init), policy)
        lanes = start_lanes(self._lake, ENVIRONMENTS, key_lanes, stagger=True)

        def fit(carry: tuple[Learner, Lane], item: tuple[PRNGKeyArray, Array]):
            learner, lanes = carry
            key_rollout, key_update = jax.random.split(item[0])
            lanes, rollout = self._collect(policy, lanes, terms, key_rollout)
            now = eqx.tree_at(lambda t: t.iteration, terms, item[1])
            learner, _ = self._algorithm.update(
                learner, rollout, self._window(rollout), now, key_update
            )
            return (eqx.tree_at(lambda one: one.policy, learner, policy), lanes), None

        (learner, lanes), _ = jax.lax.scan(
            fit, (learner, lanes), (jax.random.split(key_fit, FITTING), jnp.arange(FITTING))
        )

        def measure(lanes: Lane, key: PRNGKeyArray):
            lanes, rollout = self._collect(policy, lanes, terms, key)
            return lanes, self._measured(learner, rollout, terms)

        return jax.lax.scan(measure, lanes, jax.random.split(key_measure, MEASURING))[1]

    def _collect(self, policy: CategoricalPolicy, lanes: Lane, terms: Terms, key: PRNGKeyArray):
        lanes, rollout, _ = collect(
            self._lake, CostAccount(terms.limit, 1.0), policy, lanes, None, key, LENGTH
        )
        return lanes, rollout

    def _window(self, rollout: Rollout):
        return record_episodes(empty_window(ENVIRONMENTS * LENGTH), rollout.episodes)

    def _measured(self, learner: Learner, rollout: Rollout, terms: Terms) -> dict[str, Array]:
        window = self._window(rollout)
        values, next_values = (
            self._estimator.values(learner, x) for x in (rollout.inputs, rollout.next_inputs)
        )
        estimate = self._estimate(
            Evidence(rollout, values, next_values, window, terms, learner.extra.risk)
        )
        # The reward is of no interest here.
        ramp = jnp.linspace(-1, 1, rollout.reward.size).reshape(rollout.reward.shape)
        inputs = Inputs(rollout.inputs.reshape(-1, rollout.inputs.shape[-1]))
        surrogates = Surrogates(
            learner.policy, inputs, inputs.evaluate(learner.policy), flatten(rollout, ramp, estimate),
            estimate.bound, estimate.length,
        )  # fmt: skip
        levels, gradients = surrogates.gradients(ravel_pytree(learner.policy)[0])
        return {"value": levels.constraints[0], "gradient": gradients[1], "episodes": window.new}


def relative_variance(samples: Float[np.ndarray, "batch number"]) -> float:
    """Var / |mean|^2 of the estimates of many batches; NaN if the noise hides the signal.

    |mean|^2 is too large by Var / batches on average, which is subtracted.
    """
    variance = float(samples.var(0, ddof=1).sum())
    signal = float((samples.mean(0) ** 2).sum()) - variance / len(samples)
    return variance / signal if signal > 0 else float("nan")
