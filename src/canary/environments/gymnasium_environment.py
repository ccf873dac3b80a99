"""Gymnasium environments as environments of ours: the host steps them, one call for all lanes,
inside compiled programs.

    environment = from_gymnasium("Pendulum-v1", cost=speeding)

The state is (seed of the reset, actions since), so `reset` and `step` are pure functions and a
checkpoint of the state is a checkpoint of the episode; `canary.host.episodes` keeps live
environments as a cache of it.
"""

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, UInt32

from canary.environments.host_call import HostFunction
from canary.environments.protocol import ActionSpace, Continuous, Discrete, EnvironmentState
from canary.errors import CanaryError
from canary.host import calls
from canary.host.calls import HostCalls
from canary.host.episodes import SEED_BITS, Episodes, Rows
from canary.host.pictures import Shot, shots
from canary.host.player import GYMNASIUM, INFO, SIX_VALUES, TAIL, Cost, Player, Recipe
from canary.host.references import label_of, looks_up
from canary.host.stage import LocalStage, Stage
from canary.host.workers import WorkerStage, paying_workers, portable

_RESET = HostFunction("gymnasium_reset", calls.reset)
_RESTART = HostFunction("gymnasium_restart", calls.restart)
_STEP = HostFunction("gymnasium_step", calls.step)
MOST_LANES = 64  # episodes that an evaluation plays at once: each is a whole environment


class HostState(eqx.Module):
    """Which episode this is, and what was done in it."""

    identity: UInt32[Array, "*env 2"]
    """Drawn at the reset; the first number is the seed that the environment gets."""
    steps: Int[Array, "*env"]
    """Actions since the reset. It differs from the clock of an episode that was started in
    mid-clock."""
    actions: Float[Array, "*env horizon action"]


class FilmedState(eqx.Module):
    """What a film keeps of each moment: the episode, and the action that led there."""

    identity: UInt32[Array, "*env 2"]
    action: Float[Array, "*env action"]


@dataclass(frozen=True, eq=False)
class GymnasiumEnvironment:
    """Made by `from_gymnasium`, which explains the fields."""

    recipe: Recipe
    workers: int | None = None
    drawing: ClassVar[str] = "canary.rendering.gymnasium_environment:draw"

    @cached_property
    def _first(self) -> Player:
        """The first environment, which says what the spaces and the horizon are."""
        return Player(self.recipe)

    @cached_property
    def _episodes(self) -> Episodes:
        return Episodes(self.recipe.label, self._open_stage)

    @cached_property
    def _host(self) -> HostCalls:
        return HostCalls(self.name, self.observation_size, self._episodes)

    @cached_property
    def token(self) -> int:
        """What a program knows this environment by; it gets the token when it runs
        (`environments.numbers`)."""
        return self._host.token

    def _open_stage(self, lanes: int) -> Stage:
        workers = self.workers
        if workers is None:
            workers = paying_workers(self.recipe, self._first, lanes)
        if workers:
            return WorkerStage(self.recipe, workers, self._first.action_size)
        return LocalStage(self.recipe)

    @property
    def name(self) -> str:
        return self.recipe.label

    @cached_property
    def horizon(self) -> int:
        return self._first.horizon

    @cached_property
    def observation_size(self) -> int:
        return self._first.observation_size

    @cached_property
    def action_space(self) -> ActionSpace:
        count = self._first.action_count
        return Continuous(self._first.action_size) if count is None else Discrete(count)

    @cached_property
    def normalise_observation(self) -> bool:
        return self._first.is_physical

    @cached_property
    def policy_interface(self) -> dict[str, Any]:
        return self._first.interface()

    @property
    def most_lanes(self) -> int:
        return MOST_LANES

    def settings(self) -> dict[str, Any]:
        """The arguments of the environment, its horizon, and the name of its cost."""
        return {
            **self.recipe.arguments,
            "horizon": self.horizon,
            "cost": label_of(self.recipe.cost),
        }

    def source(self) -> dict[str, Any] | None:
        """How another process makes it: name, arguments and cost; None if it cannot import them."""
        order = portable(self.recipe)
        if order is None:
            return None
        name = order["make"] if order["make"].startswith(GYMNASIUM) else GYMNASIUM + order["make"]
        given = {"horizon": self.recipe.horizon, "workers": self.workers}
        arguments = order["arguments"] | {
            key: value for key, value in given.items() if value is not None
        }
        return {"name": name, "arguments": arguments, "cost": order["cost"]}

    def with_settings(self, changes: Mapping[str, Any]) -> "GymnasiumEnvironment":
        """The same environment with other arguments."""
        horizon = changes.get("horizon", self.recipe.horizon)
        arguments = self.recipe.arguments | {
            key: value for key, value in changes.items() if key != "horizon"
        }
        return dataclasses.replace(
            self, recipe=dataclasses.replace(self.recipe, arguments=arguments, horizon=horizon)
        )

    def reset(self, key: PRNGKeyArray) -> EnvironmentState:
        """A new episode whose seed comes from the key."""
        identity = jax.random.bits(key, (2,), jnp.uint32)
        result = jax.ShapeDtypeStruct((self.observation_size,), jnp.float32)
        observation = _RESET(result, self.token, identity)
        return self._fresh(identity, observation)

    def restart(
        self, state: EnvironmentState, done: Bool[Array, ""], key: PRNGKeyArray
    ) -> EnvironmentState:
        """A new episode where the old one is done; else the state as it is. Only what is done costs
        a reset."""
        identity = jax.random.bits(key, (2,), jnp.uint32)
        result = jax.ShapeDtypeStruct((self.observation_size,), jnp.float32)
        observation = _RESTART(result, self.token, identity, done, state.inner.identity)
        fresh = self._fresh(identity, observation)
        log = state.inner.actions  # overwritten from its start; no need to clear it
        fresh = eqx.tree_at(lambda s: s.inner.actions, fresh, log)
        return jax.tree.map(lambda new, old: jnp.where(done, new, old), fresh, state)

    def step(self, state: EnvironmentState, action: Array, key: PRNGKeyArray) -> EnvironmentState:
        """One step; the key goes unused, for the environment draws from its own seed."""
        del key
        inner: HostState = state.inner
        row = jnp.atleast_1d(action).astype(jnp.float32)
        if row.shape != (self._first.action_size,):
            raise CanaryError(
                f"An action of {self.name} has {self._first.action_size} numbers; this one has the "
                f"shape {jnp.shape(action)}."
            )
        size = self.observation_size
        done = state.terminated | state.truncated
        result = jax.ShapeDtypeStruct((size + TAIL,), jnp.float32)
        # The host reads the log up to this action only; handed over before it is written, it would
        # be copied in every step.
        log = jax.lax.dynamic_update_index_in_dim(inner.actions, row, inner.steps, 0)
        given = inner.identity, inner.steps, done, row, state.observation, log
        after = _STEP(result, self.token, *given)
        reward, cost, terminated, truncated = after[size:]
        time = state.time + 1
        ended = terminated > 0
        return EnvironmentState(
            inner=HostState(inner.identity, inner.steps + 1, log),
            observation=after[:size],
            reward=reward,
            cost=cost,
            terminated=ended,
            truncated=((truncated > 0) | (time >= self.horizon)) & ~ended,
            time=time,
        )

    def host_failure(self) -> str | None:
        """The sentence about the first failure since this was last asked."""
        return self._host.failure()

    def revive(self, state: EnvironmentState) -> Bool[np.ndarray, "lane"]:
        """Which lanes of a stored state could be brought back, by playing their actions again."""
        inner: Any = jax.tree.map(np.asarray, state.inner)
        rows = Rows(inner.identity, inner.steps, inner.actions, np.asarray(state.observation))
        return self._episodes.revive(rows, np.arange(len(rows.steps)))

    def filmed(self, state: EnvironmentState) -> EnvironmentState:
        """The state without its log of actions, which would be kept once for each of its
        entries."""
        inner: HostState = state.inner
        action = inner.actions[jnp.maximum(inner.steps - 1, 0)]
        return dataclasses.replace(state, inner=FilmedState(inner.identity, action))

    def shots(self, film: FilmedState, moments: Sequence[int]) -> Iterator[Shot]:
        """Pictures of a filmed episode at these times, by the environment's own renderer."""
        seed = int(np.asarray(film.identity)[0, 0] & SEED_BITS)
        return shots(self.recipe, seed, np.asarray(film.action)[1:], moments)

    def check_renderer(self) -> None:
        """A sentence if it cannot make pictures here."""
        with closing(shots(self.recipe, 0, np.zeros((0, self._first.action_size)), [0])) as taken:
            next(taken)

    def close(self) -> None:
        """End all environments and worker processes; what is used again starts again."""
        self._episodes.close()

    def _fresh(self, identity: Array, observation: Array) -> EnvironmentState:
        zero, no, count = jnp.zeros(()), jnp.zeros((), bool), jnp.zeros((), jnp.int32)
        log = jnp.zeros((self.horizon, self._first.action_size))
        return EnvironmentState(
            HostState(identity, count, log), observation, zero, zero, no, no, count
        )


def from_gymnasium(
    make: str | Callable[..., Any],
    cost: str | Cost = "info:cost",
    *,
    horizon: int | None = None,
    workers: int | None = None,
    **arguments: Any,
) -> GymnasiumEnvironment:
    """A Gymnasium environment for training, evaluation and certification.

    `make` is an id such as "Pendulum-v1", a name such as "my_package.shop:make", or a function that
    makes one environment; `arguments` go to it. The cost of a step is `cost(observation, action,
    next_observation, info)`; or "info:KEY", which is info[KEY]; or "safety-gymnasium", whose step
    returns it third of six values. `horizon` cuts episodes off; without it the environment's own
    limit counts. `workers` are processes that share the lanes; None takes as many as make it
    faster, 0 none.
    """
    if isinstance(make, str):
        make = make.removeprefix(GYMNASIUM)
        make = make if looks_up(make) else GYMNASIUM + make
    if not (isinstance(make, str) or callable(make)):
        raise CanaryError(
            f"make must be an id, a name or a function that makes one environment, not {make!r}."
        )
    cost = f"{INFO}cost" if cost == "info" else cost
    if not callable(cost) and not (
        isinstance(cost, str) and (cost == SIX_VALUES or cost.startswith(INFO) or looks_up(cost))
    ):
        raise CanaryError(
            f"cost must be a function, 'info:KEY', '{SIX_VALUES}' or 'package.module:function', "
            f"not {cost!r}."
        )
    if horizon is not None and (
        isinstance(horizon, bool) or not isinstance(horizon, int) or horizon < 1
    ):
        raise CanaryError(f"The horizon must be a positive whole number, not {horizon!r}.")
    if workers is not None and (
        isinstance(workers, bool) or not isinstance(workers, int) or workers < 0
    ):
        raise CanaryError(f"workers must be a whole number of at least 0, not {workers!r}.")
    environment = GymnasiumEnvironment(Recipe(make, dict(arguments), cost, horizon), workers)
    if workers and portable(environment.recipe) is None:
        raise CanaryError(
            f"Worker processes need to import what makes {environment.name} and its cost; move "
            "them to a module that can be imported, or leave workers out."
        )
    environment.horizon  # noqa: B018 - made now, so that mistakes are found here
    return environment
