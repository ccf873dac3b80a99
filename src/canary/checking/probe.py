"""Random or constant actions in many lanes at once, with every state recorded.

Lane i uses the key fold_in(key(seed), i), and time t is folded in again. So the same environment
gives the same record, and records of different lengths agree where they overlap. An environment in
JAX is played in pieces of a few steps, so that one program serves all records and a slow
environment can be stopped.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

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

LANES, PIECE = 16, 32  # a short record is one piece


@dataclass(frozen=True)
class Probe:
    """States as numpy arrays [time 0..length, lane, ...]; `taken[t]`: whether the step to time t + 1
    was taken. A lane that is done stays as it is. There is no `inner`."""

    states: EnvironmentState
    taken: Bool[np.ndarray, "time lane"]
    cut: EnvironmentState | None = None
    """The state after a first random step that began at time horizon - 1; None for host
    environments, whose adapter cuts them."""

    @property
    def done(self) -> Bool[np.ndarray, "time lane"]:
        return np.asarray(self.states.terminated | self.states.truncated)

    @property
    def finished(self) -> Bool[np.ndarray, "lane"]:
        return self.done[-1]

    def after(self, field: str) -> np.ndarray:
        """A field after each step."""
        return getattr(self.states, field)[1:]

    def episode(self, field: str) -> Float[np.ndarray, "lane ..."]:
        """The sum of a field over each lane's episode; of several costs, that of each."""
        values = self.after(field)
        taken = self.taken.reshape(self.taken.shape + (1,) * (values.ndim - 2))
        return np.where(taken, values, 0.0).astype(float).sum(0)


Play = Callable[..., Probe]
"""`play(length, seed, action, going, lanes)`: `length` steps in each lane, always with that action
or, if it is None, with random ones; fewer if all lanes are done or `going()` is false."""


def short_record(environment: Environment) -> Probe:
    """The rollout that every training begins with."""
    return make_probe(environment)(min(environment.horizon + 1, PIECE), lanes=LANES)


def make_probe(environment: Environment) -> Play:
    if isinstance(environment, GymnasiumEnvironment):
        return partial(_play_on_host, environment)

    @jax.jit
    def reset(keys: PRNGKeyArray) -> EnvironmentState:
        return jax.vmap(lambda key: environment.reset(jax.random.fold_in(key, 0)))(keys)

    @jax.jit
    def advance(
        states: EnvironmentState, keys: PRNGKeyArray, first: Array, fixed: Array, is_random: Array
    ) -> tuple[EnvironmentState, tuple[EnvironmentState, Array]]:
        def step(state: EnvironmentState, key: PRNGKeyArray) -> EnvironmentState:
            key_action, key_step = jax.random.split(key)
            action = random_action(environment.action_space, key_action)
            return environment.step(state, jnp.where(is_random, action, fixed), key_step)

        def move(states: EnvironmentState, time: Array) -> Any:
            at = jax.vmap(lambda key: jax.random.fold_in(key, time))(keys)
            done = states.terminated | states.truncated

            def choose(old: Array, new: Array) -> Array:
                return jnp.where(done.reshape(done.shape + (1,) * (new.ndim - 1)), old, new)

            kept = jax.tree.map(choose, states, jax.vmap(step)(states, at))
            return kept, (replace(kept, inner=None), ~done)

        return jax.lax.scan(move, states, first + jnp.arange(PIECE))

    def play(
        length: int,
        seed: int = 0,
        action: np.ndarray | None = None,
        going: Callable[[], bool] = lambda: True,
        lanes: int = LANES,
    ) -> Probe:
        keys = _lane_keys(lanes, seed)
        example = np.asarray(random_action(environment.action_space, keys[0]))
        how = (example, True) if action is None else (action, False)
        with explain_failures(environment):
            now = reset(keys)
            late = replace(now, time=np.full_like(now.time, environment.horizon - 1))
            cut = jax.tree.map(lambda leaf: np.asarray(leaf)[0], advance(late, keys, 1, *how)[1][0])
            states = [jax.tree.map(lambda leaf: np.asarray(leaf)[None], replace(now, inner=None))]
            taken: list[np.ndarray] = []
            while len(taken) * PIECE < length:
                now, (later, moved) = advance(now, keys, 1 + len(taken) * PIECE, *how)
                states.append(later)
                taken.append(np.asarray(moved))
                if not taken[-1][-1].any() or not going():
                    break
            whole = jax.tree.map(lambda *parts: np.concatenate(parts)[: length + 1], *states)
        return Probe(whole, np.concatenate(taken)[:length], cut)

    return play


def _lane_keys(lanes: int, seed: int) -> PRNGKeyArray:
    return jax.vmap(lambda lane: jax.random.fold_in(jax.random.key(seed), lane))(jnp.arange(lanes))


def _play_on_host(
    environment: GymnasiumEnvironment,
    length: int,
    seed: int = 0,
    action: np.ndarray | None = None,
    going: Callable[[], bool] = lambda: True,
    lanes: int = 1,
) -> Probe:
    keys, space = _lane_keys(lanes, seed), environment.action_space
    episodes = environment.episodes("probe", lanes)
    tables, taken = [], []

    def act(time: int) -> np.ndarray:
        if action is not None:
            return np.broadcast_to(action, (lanes, *action.shape))
        return np.asarray(_random_actions(space, keys, time + 1))

    identity = np.asarray(draw_identities(jax.vmap(lambda key: jax.random.fold_in(key, 0))(keys)))
    for moved in episodes.play(np.arange(lanes), identity, act):
        tables.append(episodes.table.copy())
        taken.append(np.isin(np.arange(lanes), moved))
        if len(taken) > length or (len(taken) > 1 and not going()):
            break
    states = jax.tree.map(np.asarray, states_of(jnp.asarray(np.stack(tables))))
    return Probe(states, np.stack(taken)[1:])  # the first are the resets


@partial(jax.jit, static_argnums=0)
def _random_actions(space: ActionSpace, keys: PRNGKeyArray, time: Array) -> Array:
    drawn = jax.vmap(lambda key: jax.random.split(jax.random.fold_in(key, time))[0])(keys)
    return jax.vmap(partial(random_action, space))(drawn)


def random_action(space: ActionSpace, key: PRNGKeyArray) -> Array:
    if isinstance(space, Discrete):
        return jax.random.randint(key, (), 0, space.count)
    return jax.random.uniform(key, (space.size,), minval=-1.0, maxval=1.0)
