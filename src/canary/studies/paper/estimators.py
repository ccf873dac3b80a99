"""The noise of the algorithms' own constraint estimates: GAE with fitted critics, on a fixed policy.

The policy is a network that imitates a soft policy of the lake. It does not see the spent cost, so
one network serves all limits. The algorithm's own update fits critics to it; the new policy is
discarded. Then, over many batches, the constraint value and its gradient are computed as in an
update (eqs. taylor-c, taylor-b).
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, PRNGKeyArray

from canary.algorithms.base import Algorithm, Learner, Task
from canary.algorithms.canary import CanaryConfig, cantelli_penalty
from canary.algorithms.cantelli_cpo import CantelliCPOConfig, cantelli_constraint
from canary.algorithms.clipped import Batch
from canary.algorithms.cpo import CPOConfig, expectation_constraint
from canary.algorithms.critics import make_optimiser
from canary.algorithms.cvar_cpo import CVaRCPOConfig, cvar_constraint
from canary.algorithms.inputs import Inputs
from canary.algorithms.priced import priced_objective
from canary.algorithms.quantile_critic import quantile_critic
from canary.algorithms.signals import spent_after
from canary.algorithms.surrogates import Surrogates
from canary.algorithms.trust_region import (
    Evidence,
    RiskConstraint,
    RiskEstimate,
    flatten,
    trust_region_algorithm,
)
from canary.environments.icy_lake import IcyLake
from canary.networks import CategoricalPolicy, critic_values, make_policy
from canary.numerics.moments import EpisodeWindow, empty_window, record_episodes
from canary.numerics.shaped_cost import shaped
from canary.numerics.units import in_limits
from canary.rollout import CostAccount, Lane, collect, start_lanes
from canary.types import Rollout, Terms

ENVIRONMENTS, LENGTH = 20, 200
FITTING, MEASURING = 30, 200  # batches
HIDDEN = (64, 64)

Measure = Callable[[Learner, Rollout, EpisodeWindow, Terms], tuple[Array, Array]]
"""The value of a constraint and its gradient by the parameters of the policy."""


@dataclass(frozen=True)
class Estimator:
    """A constraint as its algorithm estimates it."""

    algorithm: Algorithm
    measure: Measure
    begin: Callable[[Learner, CategoricalPolicy], Learner]
    """A fresh learner with another policy."""


def estimator(constraint: str, dead_zone: float | None, lake: IcyLake) -> Estimator:
    """`indicator` is CPO's, `cvar` CVaR-CPO's, `cantelli` that of the paper's Canary, on the shaped
    cost if there is a dead zone, `priced` Canary's."""
    if constraint == "priced":
        return _priced(dead_zone, lake)
    if constraint == "indicator":
        config = _small(CPOConfig())
        risk = RiskConstraint(critics=1, estimate=expectation_constraint(config))
    elif constraint == "cvar":
        config = _small(CVaRCPOConfig())
        model = quantile_critic(config.distribution, config.critic, config.estimation)
        risk = RiskConstraint(critics=0, estimate=cvar_constraint(config), model=model)
    else:
        config = _small(CantelliCPOConfig())
        estimate = cantelli_constraint(config)
        risk = RiskConstraint(
            critics=2, estimate=estimate if dead_zone is None else _on_shaped(estimate, dead_zone)
        )
    algorithm = trust_region_algorithm(
        risk, _task(lake), config.estimation, config.trust_region, config.critic
    )
    return Estimator(algorithm, partial(_surrogate_gradient, risk), _with_policy)


def _task(lake: IcyLake) -> Task:
    size = lake.observation_size + CostAccount.SIZE
    return Task(input_size=size, action_space=lake.action_space, horizon=lake.horizon)


def _small(config: Any) -> Any:
    """Networks, critics and batches of the `fast` preset; cost statistics of one batch alone."""
    estimation = replace(config.estimation, hidden=HIDDEN, window=1, window_batches=1)
    config = replace(config, estimation=estimation)
    if hasattr(config, "critic"):
        config = replace(config, critic=replace(config.critic, epochs=4, minibatches=8))
    return config


def _with_policy(learner: Learner, policy: CategoricalPolicy) -> Learner:
    return eqx.tree_at(lambda one: one.policy, learner, policy)


def _on_shaped(
    estimate: Callable[[Evidence], RiskEstimate], dead_zone: float
) -> Callable[[Evidence], RiskEstimate]:
    """A constraint on X = phi_d(C / limit), which is a cost too: a step pays phi(y') - phi(y), and
    the limit is 1."""

    def of_shaped(evidence: Evidence) -> RiskEstimate:
        rollout, window, terms = evidence.rollout, evidence.window, evidence.terms
        before, after = (shaped(y, dead_zone) for y in (rollout.spent, spent_after(rollout)))
        costs = shaped(in_limits(window.cost, terms.limit), dead_zone)
        return estimate(
            replace(
                evidence,
                rollout=eqx.tree_at(lambda r: (r.cost, r.spent), rollout, (after - before, before)),
                window=eqx.tree_at(lambda w: w.cost, window, costs),
                terms=eqx.tree_at(lambda t: t.limit, terms, jnp.ones(())),
            )
        )

    return of_shaped


def _surrogate_gradient(
    risk: RiskConstraint, learner: Learner, rollout: Rollout, window: EpisodeWindow, terms: Terms
) -> tuple[Array, Array]:
    """As in an update of the trust region."""
    values, next_values = (
        jnp.concatenate(
            [
                critic_values(learner.critics.networks, x)[1:],  # the first is that of the reward
                risk.model.predict(learner.extra, x),
            ]
        )
        for x in (rollout.inputs, rollout.next_inputs)
    )
    estimate = risk.estimate(Evidence(rollout, values, next_values, window, terms))
    # The reward is of no interest here.
    ramp = jnp.linspace(-1, 1, rollout.reward.size).reshape(rollout.reward.shape)
    inputs = Inputs(rollout.inputs.reshape(-1, rollout.inputs.shape[-1]))
    surrogates = Surrogates(
        learner.policy, inputs, inputs.evaluate(learner.policy), flatten(rollout, ramp, estimate),
        estimate.bound, estimate.length,
    )  # fmt: skip
    levels, gradients = surrogates.gradients(surrogates.parameters())
    return levels.constraints[0], gradients[1]


def _priced(dead_zone: float | None, lake: IcyLake) -> Estimator:
    """The priced local advantage of the cost, as in an update of Canary without rewards; its value is
    the bound on P(C > limit), less epsilon."""
    config = _small(CanaryConfig(dead_zone=dead_zone or 0.0))
    penalties = [cantelli_penalty(config)]
    objective = priced_objective(penalties, lake.horizon, config.estimation.window)

    def measure(
        learner: Learner, rollout: Rollout, window: EpisodeWindow, terms: Terms
    ) -> tuple[Array, Array]:
        values, next_values = (
            critic_values(learner.critics.networks, x)
            for x in (rollout.inputs, rollout.next_inputs)
        )
        nothing = jnp.zeros_like(rollout.reward)  # so that the constraint alone is left
        batch = Batch(rollout, (nothing, nothing), values, next_values, window)
        found = objective(batch, terms, learner.extra.memory)
        advantage = -found.advantage

        def surrogate(theta: Array) -> Array:
            policy = ravel_pytree(learner.policy)[1](theta)
            return (policy(rollout.inputs).log_prob(rollout.action) * advantage).mean()

        gradient = jax.grad(surrogate)(ravel_pytree(learner.policy)[0])
        return found.metrics["risk_bound"] - terms.epsilon, gradient

    def begin(learner: Learner, policy: CategoricalPolicy) -> Learner:
        state = make_optimiser(config.clipped.gradient_clip).init(cast(Any, policy))
        learner = _with_policy(learner, policy)
        return eqx.tree_at(lambda one: one.extra.optimiser, learner, state)

    return Estimator(config.make(_task(lake)), measure, begin)


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
        self._lake, self._estimator, self._algorithm = lake, estimator, estimator.algorithm
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
        learner = self._estimator.begin(self._algorithm.init(key_init), policy)
        lanes = start_lanes(self._lake, ENVIRONMENTS, key_lanes, stagger=True)

        def fit(carry: tuple[Learner, Lane], item: tuple[PRNGKeyArray, Array]):
            learner, lanes = carry
            key_rollout, key_update = jax.random.split(item[0])
            lanes, rollout = self._collect(policy, lanes, terms, key_rollout)
            now = eqx.tree_at(lambda t: t.iteration, terms, item[1])
            learner, _ = self._algorithm.update(
                learner, rollout, self._window(rollout), now, key_update
            )
            return (_with_policy(learner, policy), lanes), None

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
        value, gradient = self._estimator.measure(learner, rollout, window, terms)
        return {"value": value, "gradient": gradient, "episodes": window.new}


def relative_variance(samples: Float[np.ndarray, "batch number"]) -> float:
    """Var / |mean|^2 of the estimates of many batches; NaN if the noise hides the signal.

    |mean|^2 is too large by Var / batches on average, which is subtracted.
    """
    variance = float(samples.var(0, ddof=1).sum())
    signal = float((samples.mean(0) ** 2).sum()) - variance / len(samples)
    return variance / signal if signal > 0 else float("nan")
