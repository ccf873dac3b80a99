"""Record all states of random or constant actions in parallel lanes, find mistakes in a record, and
summarise it as a fingerprint of the environment's behaviour.

The random numbers of lane i at time t come from fold_in(fold_in(key(seed), i), t). So the same
environment gives the same record, and records of different lengths agree where they overlap.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

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
    name_of_environment,
)
from canary.errors import CanaryError
from canary.numerics.running_statistics import LARGEST, sane

LANES = 16  # of JAX environments
SHORT, LONG = 32, 1000  # steps of a first record: on the host, and in JAX
NUMBERS = ("cost", "reward", "observation")
TOLERANCE = 1e-3  # relative to the largest number: machines round differently
RULE = "write truncated = (time >= horizon) & ~terminated"

Choose = Callable[[int], Any]  # time -> actions of all lanes for the step to that time
fold = jax.vmap(jax.random.fold_in, (0, None))


@dataclass(frozen=True)
class Record:
    """States without `inner`, as numpy arrays [time 0, 1, ..., lane, ...]. A lane that is done does
    not change."""

    states: EnvironmentState

    @property
    def done(self) -> Bool[np.ndarray, "time lane"]:
        return np.asarray(self.states.terminated | self.states.truncated)

    @property
    def live(self) -> Bool[np.ndarray, "time lane"]:
        """Whether a reset or a step led to this state."""
        return np.concatenate([np.ones_like(self.done[:1]), ~self.done[:-1]])

    def masked(self, field: str) -> Float[np.ndarray, "time lane entry"]:
        """A field, with 0 after a lane is done."""
        values = getattr(self.states, field)
        return np.where(self.live[..., None], values.reshape(*self.live.shape, -1), 0).astype(float)


class Recorder:
    """Makes records of one environment with programs that are compiled once."""

    def __init__(self, environment: Environment):
        self.environment = environment
        self._on_host = isinstance(environment, GymnasiumEnvironment)
        self.lanes = 1 if self._on_host else LANES
        if isinstance(environment, GymnasiumEnvironment):
            self._episodes = environment.episodes(self.lanes)
        self._reset = jax.jit(lambda keys: jax.vmap(environment.reset)(fold(keys, 0)))
        self._step = jax.jit(partial(_step, environment))

    def __call__(
        self,
        length: int,
        seed: int = 0,
        action: np.ndarray | None = None,
        going: Callable[[], bool] = lambda: True,
    ) -> Record:
        """`length` steps in each lane with a constant `action`, or with random ones; fewer if all
        lanes are done or `going()` is false."""
        keys = jax.vmap(partial(jax.random.fold_in, jax.random.key(seed)))(jnp.arange(self.lanes))

        def choose(time: int) -> Any:
            if action is None:
                return random_actions(self.environment.action_space, keys, time)
            return np.broadcast_to(action, (self.lanes, *action.shape))

        states: list[EnvironmentState] = []
        with explain_failures(self.environment):
            for state in (self._host_moves if self._on_host else self._moves)(keys, choose):
                states.append(jax.tree.map(np.array, replace(state, inner=None)))
                if len(states) > length or (len(states) > 1 and not going()):
                    break
        return Record(jax.tree.map(lambda *each: np.stack(each), *states))

    def _moves(self, keys: Key[Array, "lane"], choose: Choose) -> Iterator[EnvironmentState]:
        """The states after the resets and after every step."""
        state, time = self._reset(keys), 1
        yield state
        while not np.all(state.terminated | state.truncated):
            state = self._step(state, choose(time), keys, time)
            yield state
            time += 1

    def _host_moves(self, keys: Key[Array, "lane"], choose: Choose) -> Iterator[EnvironmentState]:
        episodes = self._episodes
        identity = np.asarray(draw_identities(fold(keys, 0)))
        actions = lambda time: np.asarray(choose(time + 1))  # noqa: E731
        for _ in episodes.play(episodes.everyone, identity, actions):
            yield states_of(jnp.asarray(episodes.table))


def _step(
    environment: Environment,
    states: EnvironmentState,
    actions: Array,
    keys: Key[Array, "lane"],
    time: Int[Array, ""],
) -> EnvironmentState:
    """A step in every lane that is not done."""
    keys = jax.vmap(lambda key: jax.random.split(key)[1])(fold(keys, time))
    done = states.terminated | states.truncated

    def choose(old: Array, new: Array) -> Array:
        return jnp.where(done.reshape(done.shape + (1,) * (new.ndim - 1)), old, new)

    return jax.tree.map(choose, states, jax.vmap(environment.step)(states, actions, keys))


@partial(jax.jit, static_argnums=0)
def random_actions(space: ActionSpace, keys: Key[Array, "lane"], time: Int[Array, ""]) -> Array:
    def draw(key: Key[Array, ""]) -> Array:
        if isinstance(space, Discrete):
            return jax.random.randint(key, (), 0, space.count)
        return jax.random.uniform(key, (space.size,), minval=-1.0, maxval=1.0)

    return jax.vmap(lambda key: draw(jax.random.split(key)[0]))(fold(keys, time))


def first_record(environment: Environment) -> Record:
    """The record with which every training begins: whole episodes, if they are not too long."""
    steps = SHORT if isinstance(environment, GymnasiumEnvironment) else LONG
    return Recorder(environment)(min(environment.horizon + 1, steps))


@dataclass(frozen=True)
class Finding:
    """An error makes training wrong or impossible; a warning is likely a mistake; a note informs."""

    level: Literal["error", "warning", "note"]
    text: str


def findings_in(environment: Environment, record: Record) -> list[Finding]:
    """The mistakes that a record shows or, if there are none, whether an episode ends early."""
    if mistakes := list(_mistakes(environment, record)):
        return [Finding("error", text) for text in mistakes]
    states = record.states
    early = states.truncated & record.live & (states.time < environment.horizon)
    return [
        Finding(
            "warning",
            f"An episode is truncated after {time} steps, before its horizon of "
            f"{environment.horizon}. State the smaller horizon, or call it terminated if it ends by "
            "itself.",
        )
        for time, _ in np.argwhere(early)[:1]
    ]


def raise_first_error(findings: Iterable[Finding]) -> None:
    """Raise the first error, with the number of further errors."""
    errors = [finding.text for finding in findings if finding.level == "error"]
    if errors:
        more = f" (and {len(errors) - 1} more: `canary check-env` lists them)" if errors[1:] else ""
        raise CanaryError(f"{errors[0].removesuffix('.')}{more}.")


def _mistakes(environment: Environment, record: Record) -> Iterator[str]:
    """A sentence for each broken rule, about the first time and lane."""
    states, name, live = record.states, name_of_environment(environment), record.live
    time = live.cumsum(0) - 1
    is_reset = np.arange(len(live))[:, None] == 0
    rules: list[tuple[str, Any, str]] = [
        *((field, ~sane(record.masked(field)), f"it must be finite, at most {LARGEST:g}") for field in NUMBERS),
        ("cost", record.masked("cost") < 0, "it must be at least 0; if less is worse, change the sign"),
        ("cost", is_reset & record.masked("cost").any(-1), "only steps may cost; add it to the first step"),
        ("truncated", states.terminated & states.truncated, f"an episode that ends by itself is terminated only: {RULE}"),
        ("terminated", is_reset & record.done, "an episode must not begin at its end"),
        ("truncated", (time >= environment.horizon) & ~record.done, f"the episode must end at its horizon: {RULE}"),
        ("time", states.time != time, "it must count the steps of the episode"),
    ]  # fmt: skip
    for field, wrong, rule in rules:
        for at, lane in np.argwhere(wrong.reshape(*live.shape, -1).any(-1) & live)[:1]:
            where = f"in step {at} of lane {lane}" if at else "after reset()"
            value = f"{getattr(states, field)[at, lane]!s:.60}"
            yield f"{name} gives {field} = {value} {where}; {rule}."


def same_again(first: Record, second: Record) -> Iterator[Finding]:
    """A warning if the same keys gave other numbers in the common part of two records."""
    count = min(len(first.live), len(second.live))
    pairs = ([each.masked(field)[:count] for each in (first, second)] for field in NUMBERS)
    if not all(np.array_equal(*pair, equal_nan=True) for pair in pairs):
        yield Finding(
            "warning",
            "The same seeds and actions gave other numbers the second time, so some randomness comes "
            "neither from a key nor from the seed of the reset. A compiled program draws it once and "
            "never again; outside JAX a stopped run cannot be resumed exactly, and a certificate "
            "cannot be replayed.",
        )


def fingerprint(record: Record) -> dict[str, list[float]]:
    """Weighted sums of each field over lanes and entries: one for each of the first `SHORT` times,
    then one for each block of `SHORT` times. The weights reveal swapped entries and signs."""
    times, sums = len(record.live), {}
    starts = [*range(min(times, SHORT)), *range(SHORT, times, SHORT)]
    for field in (*NUMBERS, "terminated", "truncated"):
        values = record.masked(field)
        total = (values * np.cos(np.arange(values.shape[-1]))).sum((1, 2))
        sums[field] = [float(f"{value:.7g}") for value in np.add.reduceat(total, starts)]
    return sums


def behaviour_differences(
    stored: dict[str, list[float]], found: dict[str, list[float]]
) -> list[str]:
    """The fields that differ between two fingerprints, and the step where each begins to differ."""
    different = []
    for field, now in found.items():
        before, after = np.array(list(zip(stored[field], now, strict=False))).T
        apart = np.abs(before - after) > TOLERANCE * np.maximum(abs(before), abs(after)).max()
        if apart.any():
            place = int(np.argmax(apart))
            step = max(place, (place - SHORT + 1) * SHORT)  # see `fingerprint`
            different.append(f"the {field} differs from step {step} on")
    return different
