"""Play whole episodes of a frozen policy in parallel, one per key, each from a reset to its end.

A sample of the first episodes to end would be biased towards short ones; one per key is not.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, Key

from canary.environments.gymnasium_environment import GymnasiumEnvironment
from canary.environments.protocol import Environment, explain_failures
from canary.errors import CanaryError
from canary.host_loop import HostPlayer
from canary.networks import Policy
from canary.numerics.running_statistics import RunningStatistics, sane
from canary.rollout import CostAccount, Lane, advance, select, start_lane
from canary.types import EpisodeEnds


def play_episodes(
    environment: Environment,
    account: CostAccount,
    policy: Policy,
    statistics: RunningStatistics | None,
    keys: Key[Array, "episode"],
    *,
    deterministic: bool = False,
    filmed: Int[Array, ""] | None = None,
) -> tuple[EpisodeEnds, Lane | None]:
    """Play one episode per key, with sampled actions or, if `deterministic`, the most likely ones.
    Returns their ends, and the states of the episode with index `filmed` at times 0, ..., horizon.

    An episode is not `valid` if the policy saw an observation that is not sane.
    """
    split = jax.vmap(lambda key: jax.random.split(key, 3))(keys)
    lanes = jax.vmap(lambda key: start_lane(environment, key))(split[:, 0])
    key_act, key_step = split[:, 1], split[:, 2]

    def step(lane: Lane, action: Array, key: Array, time: jax.Array) -> Lane:
        return advance(environment, account, lane, action, jax.random.fold_in(key, time))

    def move(lanes: Lane, time: jax.Array) -> Lane:
        """One step of every lane that is not done."""
        seen = sane(lanes.environment.observation).all(-1)
        lanes = eqx.tree_at(lambda lane: lane.valid, lanes, lanes.valid & (seen | _done(lanes)))
        distribution = policy(lanes.inputs(account, statistics))
        if deterministic:
            action = distribution.mode()
        else:
            action = jax.vmap(lambda d, key: d.sample(jax.random.fold_in(key, time)))(
                distribution, key_act
            )
        moved = jax.vmap(step, (0, 0, 0, None))(lanes, action, key_step, time)
        return select(_done(lanes), lanes, moved)

    def pick(lanes: Lane) -> Lane | None:
        return None if filmed is None else jax.tree.map(lambda leaf: leaf[filmed], lanes)

    def unfinished(carry: tuple[Lane, Lane | None, jax.Array]):
        return ~_done(carry[0]).all() & (carry[2] <= environment.horizon)

    def play(carry: tuple[Lane, Lane | None, jax.Array]):
        lanes, film, time = carry
        lanes = move(lanes, time)
        film = jax.tree.map(lambda all_, now: all_.at[time + 1].set(now), film, pick(lanes))
        return lanes, film, time + 1

    film = jax.tree.map(
        lambda leaf: jnp.broadcast_to(leaf, (environment.horizon + 1, *leaf.shape)), pick(lanes)
    )
    start = lanes, film, jnp.zeros((), jnp.int32)
    lanes, film, _ = jax.lax.while_loop(unfinished, play, start)
    return lanes.ends, film


def _done(lanes: Lane) -> jax.Array:
    return lanes.environment.terminated | lanes.environment.truncated


class CompiledPlayer:
    """`player(policy, statistics, keys)` plays one episode per key, compiled once for all limits.

    With `filming`, the same program also records an episode: another program may round differently,
    and chaos would make that another episode.
    """

    def __init__(
        self,
        environment: Environment,
        account: CostAccount,
        *,
        deterministic: bool = False,
        filming: bool = False,
    ):
        @jax.jit
        def run(limit: Any, policy: Any, statistics: Any, keys: Any, filmed: Any) -> Any:
            return play_episodes(
                environment, replace(account, limit=limit), policy, statistics, keys,
                deterministic=deterministic, filmed=filmed,
            )  # fmt: skip

        self._run, self._limit, self._environment = run, account.limit, environment
        self._filmed = jnp.asarray(0) if filming else None

    def __call__(
        self, policy: Policy, statistics: RunningStatistics | None, keys: Key[Array, "episode"]
    ) -> EpisodeEnds:
        with explain_failures(self._environment):
            return jax.device_get(self._run(self._limit, policy, statistics, keys, self._filmed)[0])

    def film(
        self,
        policy: Policy,
        statistics: RunningStatistics | None,
        keys: Key[Array, "episode"],
        chosen: int,
    ) -> Any:
        """The states of the chosen episode of these keys at times 0, ..., horizon; states after its
        end have no meaning."""
        with explain_failures(self._environment):
            found = self._run(self._limit, policy, statistics, keys, jnp.asarray(chosen))
            return jax.device_get(found[1])


def make_player(
    environment: Environment,
    account: CostAccount,
    *,
    deterministic: bool = False,
    filming: bool = False,
) -> CompiledPlayer | HostPlayer:
    """A player of frozen policies with numpy results; for a host environment, a Python loop."""
    if isinstance(environment, GymnasiumEnvironment):
        return HostPlayer(environment, account, deterministic=deterministic)
    return CompiledPlayer(environment, account, deterministic=deterministic, filming=filming)


def refuse_faulty(
    ends: EpisodeEnds, name: Callable[[int], str] = lambda index: "An episode"
) -> None:
    """Raise if an episode did not end or has a number that is not sane: NaN > limit is false, so a
    NaN cost would count as safe."""
    late = ~np.asarray(ends.ended)
    bad = {
        "a cost": ~sane(ends.cost.reshape(len(ends.ended), -1)).all(1),
        "a return": ~sane(ends.reward),
        "an observation": ~np.asarray(ends.valid),
    }
    where = np.any([late, *bad.values()], axis=0)
    if not where.any():
        return
    first = int(where.argmax())
    found = [what for what, each in bad.items() if each[first]]
    are = "is" if len(found) == 1 else "are"
    fault = f"has {' and '.join(found)} that {are} not finite, or absurdly large"
    fault = "did not end within the horizon" if late[first] else fault
    raise CanaryError(f"{name(first)} {fault}; repair the environment.")
