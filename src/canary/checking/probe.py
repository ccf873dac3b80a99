"""Random or constant actions in many lanes at once, with every state recorded.

Lane i uses the key fold_in(key(seed), i), and time t is folded in again. So the same environment
gives the same record, and records of different lengths agree where they overlap.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from canary.environments.gymnasium_environment import (
    GymnasiumEnvironment,
    draw_identities,
    states_of,
)
from canary.environments.protocol import (
    ActionSpace,
    Discrete,
    Environment,
    EnvironmentState,
    explain_failures,
)

SHORT_LANES, SHORT_STEPS = 16, 32


@dataclass(frozen=True)
class Probe:
    """States as numpy arrays [time 0..length, lane, ...]; `taken[t]`: whether the step to time t + 1
    was taken."""

    states: EnvironmentState
    taken: Bool[np.ndarray, "time lane"]
    cut: EnvironmentState | None = None
    """The state after a first step that began at time horizon - 1; None for host environments,
    whose adapter cuts them."""

    @property
    def done(self) -> Bool[np.ndarray, "time lane"]:
        return np.asarray(self.states.terminated | self.states.truncated)

    def after(self, field: str) -> np.ndarray:
        """A field after each step."""
        return getattr(self.states, field)[1:]

    def episode(self, field: str) -> Float[np.ndarray, "lane ..."]:
        """The sum of a field over each lane's episode; of several costs, that of each."""
        values = self.after(field)
        taken = self.taken.reshape(self.taken.shape + (1,) * (values.ndim - 2))
        return np.where(taken, values, 0.0).astype(float).sum(0)

    @property
    def finished(self) -> Bool[np.ndarray, "lane"]:
        return self.done[-1]


def short_record(environment: Environment) -> Probe:
    """The rollout that every training begins with."""
    return make_probe(environment, min(environment.horizon + 1, SHORT_STEPS))(SHORT_LANES, 0)


def make_probe(environment: Environment, length: int) -> Callable[..., Probe]:
    """A function of a number of lanes, a seed and an action. It plays `length` steps in each lane,
    always with that action or, if it is None, with random ones.

    A lane that is done stays as it is. The record has no `inner`.
    """
    if isinstance(environment, GymnasiumEnvironment):
        return partial(_probe_host, environment, length)
    program = jax.jit(lambda keys, *action: _play(environment, keys, length, *action))

    def play(lanes: int, seed: int = 0, action: np.ndarray | None = None) -> Probe:
        keys, is_random = _lane_keys(lanes, seed), action is None
        if action is None:
            action = np.asarray(random_action(environment.action_space, keys[0]))
        with explain_failures(environment):
            states, taken, cut = jax.tree.map(np.asarray, program(keys, action, is_random))
        return Probe(states, taken, cut)

    return play


def _lane_keys(lanes: int, seed: int) -> PRNGKeyArray:
    return jax.vmap(lambda lane: jax.random.fold_in(jax.random.key(seed), lane))(jnp.arange(lanes))


def _probe_host(
    environment: GymnasiumEnvironment,
    length: int,
    lanes: int,
    seed: int = 0,
    action: np.ndarray | None = None,
) -> Probe:
    """The same by a plain loop."""
    keys = _lane_keys(lanes, seed)
    episodes = environment.episodes("probe", lanes)
    tables, taken = np.empty((length + 1, *episodes.table.shape)), np.zeros((length, lanes), bool)

    def act(time: int) -> np.ndarray:
        if action is not None:
            return np.broadcast_to(action, (lanes, *action.shape))
        return np.asarray(_random_actions(environment.action_space, keys, time + 1))

    identity = np.asarray(draw_identities(jax.vmap(lambda key: jax.random.fold_in(key, 0))(keys)))
    time = 0
    for time, moved in zip(
        range(length + 1), episodes.play(np.arange(lanes), identity, act), strict=False
    ):
        tables[time] = episodes.table
        if time:
            taken[time - 1, moved] = True
    tables[time + 1 :] = tables[time]
    states = jax.tree.map(np.asarray, states_of(jnp.asarray(tables, jnp.float32)))
    return Probe(states, taken)


@partial(jax.jit, static_argnums=0)
def _random_actions(space: ActionSpace, keys: PRNGKeyArray, time: Array) -> Array:
    drawn = jax.vmap(lambda key: jax.random.split(jax.random.fold_in(key, time))[0])(keys)
    return jax.vmap(partial(random_action, space))(drawn)


def random_action(space: ActionSpace, key: PRNGKeyArray) -> Array:
    if isinstance(space, Discrete):
        return jax.random.randint(key, (), 0, space.count)
    return jax.random.uniform(key, (space.size,), minval=-1.0, maxval=1.0)


def _play(
    environment: Environment, keys: PRNGKeyArray, length: int, fixed: Array, is_random: Array
) -> tuple[EnvironmentState, Array, EnvironmentState | None]:
    first = jax.vmap(lambda key: environment.reset(jax.random.fold_in(key, 0)))(keys)

    def step(state: EnvironmentState, key: PRNGKeyArray) -> EnvironmentState:
        key_action, key_step = jax.random.split(key)
        action = random_action(environment.action_space, key_action)
        return environment.step(state, jnp.where(is_random, action, fixed), key_step)

    def advance(states: EnvironmentState, time: Array):
        moved = jax.vmap(step)(states, jax.vmap(lambda key: jax.random.fold_in(key, time))(keys))
        done = states.terminated | states.truncated

        def choose(old: Array, new: Array) -> Array:
            return jnp.where(done.reshape(done.shape + (1,) * (new.ndim - 1)), old, new)

        kept = jax.tree.map(choose, states, moved)
        return kept, (replace(kept, inner=None), ~done)

    _, (later, taken) = jax.lax.scan(advance, first, jnp.arange(1, length + 1))
    states = jax.tree.map(
        lambda start, rest: jnp.concatenate([start[None], rest]), replace(first, inner=None), later
    )
    late = replace(first, time=jnp.full_like(first.time, environment.horizon - 1))
    return states, taken, replace(jax.vmap(step)(late, keys), inner=None)
