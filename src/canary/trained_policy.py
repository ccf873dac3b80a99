"""Act with a trained policy, one episode at a time.

A policy sees x_t = (s_t, g_t, y_t): besides the observation, the cost y_t spent so far in this episode and
the cost discount g_t (paper eq. aug-state). A bare `predict(observation)` would therefore be wrong; an
`Episode` keeps the account.
"""

import math
import secrets
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from canary.algorithms.remaining_risk import RiskCritics, remaining_risk
from canary.environments.protocol import ActionSpace, Discrete, EnvironmentState
from canary.errors import CanaryError
from canary.networks import Policy
from canary.numerics.running_statistics import RunningStatistics
from canary.rollout import Augmentation, Lane, see


@dataclass(frozen=True)
class TrainedPolicy:
    """A frozen policy of one seed, with all that it needs to act."""

    policy: Policy
    statistics: RunningStatistics | None
    augmentation: Augmentation
    observation_size: int
    action_space: ActionSpace
    horizon: int = 1
    critics: RiskCritics | None = None
    """What the risk estimate needs; None for algorithms without such critics."""

    def start(self, seed: int | PRNGKeyArray | None = None) -> "Episode":
        """A new episode, nothing spent; a `seed` (whole number or JAX key) makes its actions repeatable."""
        key = secrets.randbits(31) if seed is None else seed
        if isinstance(key, int | np.integer):
            key = jax.random.key(int(key))
        if not (isinstance(key, jax.Array) and jax.dtypes.issubdtype(key.dtype, jax.dtypes.prng_key)):
            raise CanaryError(f"start() takes a whole number or a JAX key, not {seed!r}.")
        return Episode(self, key)


class Episode:
    """One episode: `act`, do it, `spend` its cost, and so on until the environment ends it."""

    def __init__(self, trained: TrainedPolicy, key: PRNGKeyArray):
        self._trained = trained
        self._key = jax.random.split(key, 3)[1]  # the stream of actions that evaluation draws from this key
        self._time, self._spent, self._discount, self._has_acted = 0, 0.0, 1.0, False

    @property
    def spent(self) -> float:
        """The (discounted) cost of this episode so far, in raw units."""
        return self._spent

    @property
    def remaining(self) -> float:
        """What may still be spent before the limit is passed; negative once it has been."""
        return self._trained.augmentation.limit - self._spent

    def act(self, observation: Any, deterministic: bool = False) -> int | Float[np.ndarray, "action"]:
        """The action for this observation: an int, or a vector within [-1, 1]."""
        if self._has_acted:
            raise CanaryError(
                "act() was called twice; call spend(cost) with the cost of the first action before."
            )
        trained, key = self._trained, jax.random.fold_in(self._key, self._time)
        seen = _checked_observation(observation, trained.observation_size)
        account = np.float32(self._spent), np.float32(self._discount)
        actions = _choose(trained.policy, trained.statistics, trained.augmentation, seen, account, key)
        self._has_acted = True
        action = actions[1] if deterministic else actions[0]
        if isinstance(trained.action_space, Discrete):
            return int(action)
        return np.clip(np.asarray(action), -1.0, 1.0)  # as the environment did in training

    def risk(self, observation: Any) -> float:
        """Estimated bound on P(episode cost > limit) from here on, by Cantelli's inequality and Canary's own critics.

        A warning light for people and supervisors, as good as the critics are; a guarantee comes from certification.
        """
        trained = self._trained
        if trained.critics is None:
            raise CanaryError(
                "Only policies that Canary trained can estimate their risk: it needs Canary's cost critics."
            )
        seen = _checked_observation(observation, trained.observation_size)
        x = _see(
            trained.statistics,
            trained.augmentation,
            seen,
            (jnp.float32(self._spent), jnp.float32(self._discount)),
        )
        if trained.critics.time_feature:
            x = jnp.append(x, jnp.float32(self._time / trained.horizon))
        spent = jnp.float32(self._spent / trained.augmentation.limit)
        return float(
            remaining_risk(
                trained.critics.networks,
                x,
                spent,
                jnp.float32(self._discount),
                structured=trained.critics.structured,
            )
        )

    def spend(self, cost: float) -> None:
        """Enter the cost of the last action, 0 included: y_{t+1} = y_t + g_t c_t."""
        if not self._has_acted:
            raise CanaryError(
                "spend() was called without an action before; call act(observation) first, then spend once."
            )
        try:
            value = float(cost)
        except (TypeError, ValueError):
            value = math.nan
        if not math.isfinite(value):
            raise CanaryError(
                f"The cost of a step must be a finite number, not {cost!r} (step {self._time})."
            )
        self._spent += self._discount * value
        self._discount *= self._trained.augmentation.discount
        self._time, self._has_acted = self._time + 1, False


def _checked_observation(observation: Any, size: int) -> Float[np.ndarray, "obs"]:
    try:
        seen = np.asarray(observation, np.float32)
    except (TypeError, ValueError):
        raise CanaryError(f"An observation must be {size} numbers, not {observation!r}.") from None
    if seen.shape != (size,):
        raise CanaryError(f"An observation must have the shape ({size},), not {seen.shape}.")
    if not np.isfinite(seen).all():
        raise CanaryError(
            f"The observation is not finite at index {int(np.flatnonzero(~np.isfinite(seen))[0])}."
        )
    return seen


@partial(jax.jit, static_argnums=2)
def _choose(
    policy: Policy,
    statistics: RunningStatistics | None,
    augmentation: Augmentation,
    observation: Float[Array, "obs"],
    account: tuple[Float[Array, ""], Float[Array, ""]],
    key: PRNGKeyArray,
) -> tuple[Array, Array]:
    """A sampled action and the most likely one."""
    distribution = policy(_see(statistics, augmentation, observation, account))
    return distribution.sample(key), distribution.mode()


def _see(
    statistics: RunningStatistics | None,
    augmentation: Augmentation,
    observation: Any,
    account: tuple[Float[Array, ""], Float[Array, ""]],
) -> Float[Array, "input"]:
    """x as training saw it, from an observation and the account (spent, discount)."""
    zero, no, (spent, discount) = jnp.zeros(()), jnp.zeros((), bool), account
    count = jnp.zeros((), jnp.int32)
    state = EnvironmentState(None, jnp.asarray(observation), zero, zero, no, no, count)
    return see(Lane(state, spent, discount, zero, count, ~no), augmentation, statistics)
