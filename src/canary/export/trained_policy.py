"""Act with a trained policy, one episode at a time.

A policy sees x_t = (s_t, p_t, y_t): the observation, the pace p_t (the clock t / horizon, or the
cost discount g_t) and the cost y_t spent so far in this episode (paper eq. aug-state). An observation
alone does not determine the action, so an `Episode` keeps the account.
"""

import secrets
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from canary.algorithms.remaining_risk import RiskCritics, remaining_risk
from canary.environments.protocol import Discrete
from canary.errors import CanaryError
from canary.export import numpy_policy
from canary.identity import Identity, Place, identify
from canary.networks import Policy
from canary.numerics.running_statistics import RunningStatistics
from canary.rollout import CostAccount, policy_inputs


@dataclass(frozen=True)
class TrainedPolicy:
    """The frozen policy of one seed, with all that it needs to act."""

    policy: Policy
    statistics: RunningStatistics | None
    account: CostAccount
    place: Place
    """The environment that it was trained in."""
    critics: RiskCritics | None = None
    """For the risk estimate; None for algorithms without such critics."""
    about: dict[str, Any] = field(default_factory=dict)
    """Where it comes from, as plain data for the metadata of an export."""

    @property
    def identity(self) -> Identity:
        return identify(self.policy, self.statistics, self.account, self.place, self.critics)

    @property
    def sha256(self) -> str:
        """The digest of everything that determines its behaviour, as in certificates and exports."""
        return self.identity.sha256

    @property
    def interface(self) -> dict[str, Any] | None:
        """How an episode converts observations and actions of the environment; None: it does not."""
        return self.place.interface

    def pace(self, time: int, discount: float) -> float:
        """What the networks see of the time."""
        return self.account.pace(time, discount)

    def start(self, seed: int | PRNGKeyArray | None = None) -> "Episode":
        """A new episode; a `seed` (whole number or JAX key) makes its actions repeatable."""
        key = secrets.randbits(31) if seed is None else seed
        if isinstance(key, int | np.integer):
            key = jax.random.key(int(key))
        if not (
            isinstance(key, jax.Array) and jax.dtypes.issubdtype(key.dtype, jax.dtypes.prng_key)
        ):
            raise CanaryError(f"start() takes a whole number or a JAX key, not {seed!r}.")
        # The stream of actions that evaluation draws from this key
        stream = jax.random.split(key, 3)[1]
        limit = self.account.limit
        account = limit if np.ndim(limit) else float(limit), self.account.cost_discount
        return Episode(self, stream, account, self.place.observation_size)


class Episode(numpy_policy.Episode):
    """One episode: `act`, step the environment, `spend` the cost of the step, and so on."""

    mistake = CanaryError

    def _choose(
        self, seen: Float[np.ndarray, "obs"], deterministic: bool
    ) -> int | Float[np.ndarray, "action"]:
        trained, key = self._policy, jax.random.fold_in(self._random, self._time)
        numbers = map(np.float32, (self._limit, self._spent, self._pace))
        account = replace(trained.account, limit=1.0)
        actions = _choose(trained.policy, trained.statistics, seen, account, *numbers, key)
        action = actions[1] if deterministic else actions[0]
        # A vector is not clipped: the environment does that, after its noise if it has any
        return (
            int(action) if isinstance(trained.place.action_space, Discrete) else np.asarray(action)
        )

    def _estimated_risk(self, seen: Float[np.ndarray, "obs"]) -> float:
        trained = self._policy
        if trained.critics is None:
            raise CanaryError(
                "Only policies that Canary trained, with one cost, can estimate their risk: it needs "
                "Canary's cost critics."
            )
        spent, pace = jnp.float32(self._spent), jnp.float32(self._pace)
        x = policy_inputs(jnp.asarray(seen), spent, pace, trained.account, trained.statistics)
        discount = jnp.float32(self._discount)
        spent = jnp.float32(self._spent / trained.account.limit)
        dead_zone = trained.critics.dead_zone
        risk = remaining_risk(trained.critics.networks, x, spent, discount, dead_zone=dead_zone)
        return float(risk)


@partial(jax.jit, static_argnums=3)
def _choose(
    policy: Policy,
    statistics: RunningStatistics | None,
    observation: Float[Array, "obs"],
    account: CostAccount,
    limit: Float[Array, "..."],
    spent: Float[Array, "..."],
    pace: Float[Array, ""],
    key: PRNGKeyArray,
) -> tuple[Array, Array]:
    """A sampled action and the most likely one."""
    account = replace(account, limit=limit)
    distribution = policy(policy_inputs(observation, spent, pace, account, statistics))
    return distribution.sample(key), distribution.mode()
