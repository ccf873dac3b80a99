"""Random actions in many lanes at once, every state recorded: what the other checks look at.

Lane i uses the key fold_in(key(seed), i) and time t folds in again, so the same environment gives
the same record, and records of different lengths agree where they overlap. The fingerprint of a
record is a few numbers: two environments that differ in them are not the same. Settings tell most
differences apart; the fingerprint tells code that was changed.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from canary.environments.failures import told_failures
from canary.environments.host_environment import HostEnvironment, draw_identities, states_of
from canary.environments.protocol import (
    ActionSpace,
    Discrete,
    Environment,
    EnvironmentState,
)


@dataclass(frozen=True)
class Probe:
    """States as numpy arrays [time 0..length, lane, ...], and whether the step to time t + 1 was
    taken."""

    states: EnvironmentState
    taken: Bool[np.ndarray, "time lane"]
    cut: EnvironmentState | None = None
    """After a first step that began at time horizon - 1; None of environments on the host, whose
    adapter cuts them."""

    @property
    def done(self) -> Bool[np.ndarray, "time lane"]:
        return np.asarray(self.states.terminated | self.states.truncated)

    def after(self, field: str) -> np.ndarray:
        """A field after each step."""
        return getattr(self.states, field)[1:]

    def episode(self, field: str) -> Float[np.ndarray, "lane"]:
        """The sum of a field over each lane's episode."""
        return np.where(self.taken, self.after(field), 0.0).astype(float).sum(0)

    @property
    def finished(self) -> Bool[np.ndarray, "lane"]:
        return self.done[-1]


def random_action(space: ActionSpace, key: PRNGKeyArray) -> Array:
    if isinstance(space, Discrete):
        return jax.random.randint(key, (), 0, space.count)
    return jax.random.uniform(key, (space.size,), minval=-1.0, maxval=1.0)


def make_probe(environment: Environment, length: int) -> Callable[[int, int], Probe]:
    """A function of a number of lanes and a seed that plays `length` steps in each lane.

    A lane that is done stays as it is. `inner` is left out of the record.
    """
    if isinstance(environment, HostEnvironment):
        return partial(_probe_host, environment, length)
    program = jax.jit(lambda keys: _play(environment, keys, length))

    def play(lanes: int, seed: int = 0) -> Probe:
        with told_failures(environment):
            states, taken, cut = jax.tree.map(np.asarray, program(_lane_keys(lanes, seed)))
        return Probe(states, taken, cut)

    return play


def _lane_keys(lanes: int, seed: int) -> PRNGKeyArray:
    return jax.vmap(lambda lane: jax.random.fold_in(jax.random.key(seed), lane))(jnp.arange(lanes))


def _probe_host(environment: HostEnvironment, length: int, lanes: int, seed: int = 0) -> Probe:
    """The same by a plain loop."""
    keys = _lane_keys(lanes, seed)
    episodes = environment.episodes("probe", lanes)
    tables, taken = np.empty((length + 1, *episodes.table.shape)), np.zeros((length, lanes), bool)

    @jax.jit
    def act(time: Array) -> Array:
        drawn = jax.vmap(lambda key: jax.random.split(jax.random.fold_in(key, time))[0])(keys)
        return jax.vmap(partial(random_action, environment.action_space))(drawn)

    identity = np.asarray(draw_identities(jax.vmap(lambda key: jax.random.fold_in(key, 0))(keys)))
    played = episodes.play(np.arange(lanes), identity, lambda time: np.asarray(act(time + 1)))
    for time, moved in zip(range(length + 1), played, strict=False):
        tables[time:] = episodes.table
        if time:
            taken[time - 1, moved] = True
    states = jax.tree.map(np.asarray, states_of(jnp.asarray(tables, jnp.float32)))
    return Probe(states, taken)


def _play(
    environment: Environment, keys: PRNGKeyArray, length: int
) -> tuple[EnvironmentState, Array, EnvironmentState | None]:
    first = jax.vmap(lambda key: environment.reset(jax.random.fold_in(key, 0)))(keys)

    def step(state: EnvironmentState, key: PRNGKeyArray) -> EnvironmentState:
        key_action, key_step = jax.random.split(key)
        return environment.step(
            state, random_action(environment.action_space, key_action), key_step
        )

    def advance(states: EnvironmentState, time: Array):
        moved = jax.vmap(step)(states, jax.vmap(lambda key: jax.random.fold_in(key, time))(keys))
        done = states.terminated | states.truncated

        def choose(old: Array, new: Array) -> Array:
            return jnp.where(done.reshape(done.shape + (1,) * (new.ndim - 1)), old, new)

        kept = jax.tree.map(choose, states, moved)
        return kept, (_bare(kept), ~done)

    _, (later, taken) = jax.lax.scan(advance, first, jnp.arange(1, length + 1))
    states = jax.tree.map(
        lambda start, rest: jnp.concatenate([start[None], rest]), _bare(first), later
    )
    return states, taken, _bare(_cut(environment, first, keys))


def _cut(environment: Environment, first: EnvironmentState, keys: PRNGKeyArray) -> EnvironmentState:
    late = replace(first, time=jnp.full_like(first.time, environment.horizon - 1))

    def step(state: EnvironmentState, key: PRNGKeyArray) -> EnvironmentState:
        return environment.step(state, random_action(environment.action_space, key), key)

    return jax.vmap(step)(late, keys)


def _bare(state: EnvironmentState) -> EnvironmentState:
    return replace(state, inner=None)


TOLERANCE = 1e-3  # of the largest number of its kind: machines round differently
KINDS = ("observation", "reward", "cost", "ends")


def fingerprint(record: Probe) -> dict[str, list[float]]:
    """Numbers by kind, one for each time, over all lanes; time 0 is the reset."""
    states = record.states
    seen = states.observation.astype(float)
    weights = np.cos(np.arange(seen.shape[-1]))  # so that swapped entries and signs show
    columns = {
        "observation": (seen * weights).sum((1, 2)),
        "reward": np.where(_moved(record), states.reward, 0).astype(float).sum(1),
        "cost": np.where(_moved(record), states.cost, 0).astype(float).sum(1),
        "ends": record.done.astype(float).sum(1),
    }
    return {kind: [float(f"{value:.7g}") for value in column] for kind, column in columns.items()}


def differences(stored: Any, found: dict[str, list[float]]) -> list[str]:
    """Which kinds of numbers differ, and from which step on; a stored fingerprint of another form
    says so."""
    try:
        columns = {kind: np.asarray(stored[kind], float) for kind in KINDS}
    except (KeyError, TypeError, ValueError):
        return ["the stored behaviour cannot be read"]
    different = []
    for kind, before in columns.items():
        after = np.asarray(found[kind], float)
        common = min(len(before), len(after))
        before, after = before[:common], after[:common]
        scale = max(np.abs(before).max(initial=0), np.abs(after).max(initial=0))
        apart = np.abs(before - after) > TOLERANCE * scale
        if apart.any():
            different.append(f"the {kind} differs from step {int(np.argmax(apart))} on")
    return different


def _moved(record: Probe) -> np.ndarray:
    lanes = record.taken.shape[1]
    return np.concatenate([np.ones((1, lanes), bool), record.taken])
