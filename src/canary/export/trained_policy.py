"""Act with a trained policy, one episode at a time.

A policy sees x_t = (s_t, g_t, y_t): besides the observation, the cost y_t spent so far in this
episode and the cost discount g_t (paper eq. aug-state). A bare `predict(observation)` would
therefore be wrong; an `Episode` keeps the account.
"""

import secrets
from dataclasses import dataclass
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
from canary.identity import Place, identify
from canary.networks import Policy
from canary.numerics.running_statistics import RunningStatistics
from canary.rollout import CostAccount, policy_inputs


@dataclass(frozen=True)
class TrainedPolicy:
    """A frozen policy of one seed, with all that it needs to act."""

    policy: Policy
    statistics: RunningStatistics | None
    account: CostAccount
    place: Place
    """The environment that it was trained in."""
    critics: RiskCritics | None = None
    """What the risk estimate needs; None for algorithms without such critics."""

    @property
    def sha256(self) -> str:
        """The digest of everything that determines how it behaves, as in certificates and
        exports."""
        return identify(self.policy, self.statistics, self.account, self.place, self.critics).sha256

    @property
    def interface(self) -> dict[str, Any] | None:
        """How an episode makes its inputs of the environment's observations, and the environment's
        actions of its own; None where they are the same."""
        return self.place.interface

    def start(self, seed: int | PRNGKeyArray | None = None) -> "Episode":
        """A new episode, nothing spent; a `seed` (whole number or JAX key) makes its actions
        repeatable."""
        key = secrets.randbits(31) if seed is None else seed
        if isinstance(key, int | np.integer):
            key = jax.random.key(int(key))
        if not (
            isinstance(key, jax.Array) and jax.dtypes.issubdtype(key.dtype, jax.dtypes.prng_key)
        ):
            raise CanaryError(f"start() takes a whole number or a JAX key, not {seed!r}.")
        # The stream of actions that evaluation draws from this key
        stream = jax.random.split(key, 3)[1]
        account = float(self.account.limit), self.account.cost_discount
        return Episode(self, stream, account, self.place.observation_size)


class Episode(numpy_policy.Episode):
    """One episode: `act`, do it, `spend` its cost, and so on until the environment ends it."""

    mistake = CanaryError

    def _choose(
        self, seen: Float[np.ndarray, "obs"], deterministic: bool
    ) -> int | Float[np.ndarray, "action"]:
        trained, key = self._policy, jax.random.fold_in(self._random, self._time)
        account = trained.account, *self._spent_and_discount
        actions = _choose(trained.policy, trained.statistics, seen, *account, key)
        action = actions[1] if deterministic else actions[0]
        # A vector is not clipped: the environment does that, and after its noise if it has any.
        return (
            int(action) if isinstance(trained.place.action_space, Discrete) else np.asarray(action)
        )

    def risk(self, observation: Any) -> float:
        """Estimated bound on P(episode cost > limit) from here on, by Cantelli's inequality and
        Canary's own critics.

        A warning light for people and supervisors, as good as the critics are; a guarantee comes
        from certification.
        """
        trained = self._policy
        if trained.critics is None:
            raise CanaryError(
                "Only policies that Canary trained can estimate their risk: it needs Canary's cost "
                "critics."
            )
        seen = jnp.asarray(self._checked(observation))
        spent, discount = map(jnp.asarray, self._spent_and_discount)
        x = policy_inputs(seen, spent, discount, trained.account, trained.statistics)
        if trained.critics.time_feature:
            x = jnp.append(x, jnp.float32(self._time / trained.place.horizon))
        spent = jnp.float32(self._spent / trained.account.limit)
        risk = remaining_risk(
            trained.critics.networks, x, spent, discount, dead_zone=trained.critics.dead_zone
        )
        return float(risk)

    @property
    def _spent_and_discount(self) -> tuple[np.float32, np.float32]:
        """In the precision that networks see."""
        return np.float32(self._spent), np.float32(self._discount)


@partial(jax.jit, static_argnums=3)
def _choose(
    policy: Policy,
    statistics: RunningStatistics | None,
    observation: Float[Array, "obs"],
    account: CostAccount,
    spent: Float[Array, ""],
    discount: Float[Array, ""],
    key: PRNGKeyArray,
) -> tuple[Array, Array]:
    """A sampled action and the most likely one."""
    distribution = policy(policy_inputs(observation, spent, discount, account, statistics))
    return distribution.sample(key), distribution.mode()
