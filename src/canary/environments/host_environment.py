"""What an environment outside JAX is. No program can contain it; Python loops step it
(`canary.host_loop`, `canary.host_training`)."""

from collections.abc import Hashable
from typing import Any, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key, UInt32

from canary.environments.protocol import ActionSpace, EnvironmentState
from canary.host.episodes import COST, REWARD, TERMINATED, TIME, TRUNCATED, Episodes
from canary.host.player import Player


@runtime_checkable
class HostEnvironment(Protocol):
    """Has all that an `Environment` has; instead of `reset` and `step` this is used."""

    @property
    def horizon(self) -> int: ...

    @property
    def action_space(self) -> ActionSpace: ...

    @property
    def first(self) -> Player:
        """One of the environments, which knows the sizes."""
        ...

    def episodes(self, name: Hashable, lanes: int) -> Episodes:
        """The live episodes that were opened under this name, or new ones."""
        ...


class HostState(eqx.Module):
    """The inner state of a host environment: which episode this is, and the actions in it."""

    identity: UInt32[Array, "*env 2"]
    """Drawn at the reset; the first number is the seed that the environment gets."""
    steps: Int[Array, "*env"]
    """Actions since the reset. It differs from the clock of an episode that was started in
    mid-clock."""
    actions: Float[Array, "*env horizon action"]


def draw_identities(keys: Key[Array, "*batch"]) -> UInt32[Array, "*batch 2"]:
    """The identity of an episode by the key of its reset."""
    bits = jax.vmap(lambda key: jax.random.bits(key, (2,), jnp.uint32))(keys.reshape(-1))
    return bits.reshape(*keys.shape, 2)


def states_of(table: Float[Array, "*batch column"], inner: Any = None) -> EnvironmentState:
    """The states that a table of `Episodes` describes."""
    return EnvironmentState(
        inner=inner,
        observation=table[..., :REWARD],
        reward=table[..., REWARD],
        cost=table[..., COST],
        terminated=table[..., TERMINATED] > 0,
        truncated=table[..., TRUNCATED] > 0,
        time=table[..., TIME].astype(jnp.int32),
    )
