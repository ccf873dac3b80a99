"""Environments with Brax's state (Brax, MuJoCo Playground, CRAX), inside the compiled program.

Their `State` has obs, reward, done, metrics and info; the cost is an entry of info or of metrics,
or a function. `done` means that the episode ended by itself: pass the bare environment, without the
package's episode and auto-reset wrappers. Canary cuts episodes at its horizon, keeps the last
observation, and draws a fresh state at every reset.
"""

import inspect
from collections.abc import Mapping
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from canary.environments.jax_adapters import Adapted, checked_horizon, like, require, scalar
from canary.environments.protocol import Continuous, EnvironmentState, first_state
from canary.errors import CanaryError
from canary.host.player import INFO, Cost, cost_reader
from canary.host.references import describe

METRICS = "metrics:"
EPISODE_LENGTH = 1000  # steps; what the trainers of these packages use


class BraxEnvironment(Adapted):
    """Made by `from_brax`."""

    packages = ("brax", "crax", "playground")

    @property
    def action_space(self) -> Continuous:
        return Continuous(int(self.foreign.action_size))

    @cached_property
    def observation_size(self) -> int:
        state = jax.eval_shape(self._reset, jax.random.key(0))
        return jax.eval_shape(self._see, state).shape[0]

    @property
    def normalise_observation(self) -> bool:
        return True

    def with_settings(self, changes: Mapping[str, Any]) -> "BraxEnvironment":
        given: dict[str, Any] = {"horizon": self.horizon, **self.arguments, **changes}
        return from_brax(self.name, self.cost, **given)

    def reset(self, key: PRNGKeyArray) -> EnvironmentState:
        state = like(self._reset(key), self._shapes, self.name)
        return first_state(state, self._see(state))

    def step(self, state: EnvironmentState, action: Array, key: PRNGKeyArray) -> EnvironmentState:
        """One step. The key is not used: a Brax state carries its own."""
        del key
        move = jnp.clip(action, -1.0, 1.0)
        after = self.foreign.step(state.inner, move)
        terminated = jnp.asarray(after.done).reshape(()) > 0
        observation, time = self._see(after), state.time + 1
        return EnvironmentState(
            inner=like(after, self._shapes, self.name),
            observation=observation,
            reward=scalar(after.reward),
            cost=scalar(self._read(state.observation, move, observation, after)),
            terminated=terminated,
            truncated=(time >= self.horizon) & ~terminated,
            time=time,
        )

    def _read(self, before: Array, action: Array, after: Array, state: Any) -> Any:
        if isinstance(self.cost, str) and self.cost.startswith(METRICS):
            key = INFO + self.cost.removeprefix(METRICS)
            return cost_reader(key, "metrics")(before, action, after, state.metrics)
        return cost_reader(self.cost)(before, action, after, state.info)

    def _reset(self, key: PRNGKeyArray) -> Any:
        # These packages expect keys of the old kind
        return self.foreign.reset(jax.random.key_data(key))

    @cached_property
    def _shapes(self) -> Any:
        """Shapes and types of a state after a step."""
        action = jnp.zeros(int(self.foreign.action_size))
        return jax.eval_shape(
            lambda key: self.foreign.step(self._reset(key), action), jax.random.key(0)
        )

    def _see(self, state: Any) -> Float[Array, "obs"]:
        seen = state.obs
        if isinstance(seen, Mapping):
            if (chosen := self.arguments["observation"]) not in seen:
                raise CanaryError(
                    f"{self.name} has several observations ({', '.join(sorted(seen))}); say which: "
                    "observation='...'."
                )
            seen = seen[chosen]
        return jnp.asarray(seen, jnp.float32).ravel()


def _brax(name: str, arguments: dict[str, Any]) -> Any:
    return require("brax.envs", f"brax:{name}").get_environment(name, **arguments)


def _crax(name: str, arguments: dict[str, Any]) -> Any:
    return require("crax.envs", f"crax:{name}").get_environment(name, **arguments)


def _playground(name: str, arguments: dict[str, Any]) -> Any:
    return require("mujoco_playground", f"playground:{name}").registry.load(name, **arguments)


MAKERS = {"brax": _brax, "crax": _crax, "playground": _playground}


def from_brax(
    make: Any,
    cost: str | Cost = "info:cost",
    *,
    horizon: int | None = EPISODE_LENGTH,
    observation: str | None = None,
    **arguments: Any,
) -> BraxEnvironment:
    """An environment with Brax's state for training.

    `make` is "brax:ant", "crax:safe_goal_point" or "playground:CartpoleBalance", or an environment
    itself; `arguments` go to the package's maker. The cost of a step is "info:KEY", "metrics:KEY",
    or `cost(observation, action, next_observation, info)` in jax.numpy. `observation` chooses one
    where there are several.
    """
    if isinstance(make, str):
        package, _, identity = make.partition(":")
        if package not in MAKERS or not identity:
            raise CanaryError(
                f"Name the package: {', '.join(f'{known}:NAME' for known in MAKERS)}, not {make!r}."
            )
        name = make
        try:
            environment = MAKERS[package](identity, dict(arguments))
        except CanaryError:
            raise
        except Exception as error:
            raise CanaryError(f"{name} could not be made ({describe(error)}).") from error
    else:
        environment, name = make, f"{type(make).__module__}:{type(make).__name__}"
    for member in ("reset", "step", "action_size"):
        if not hasattr(environment, member):
            raise CanaryError(f"{name} has no {member}, so it is no environment of Brax's kind.")
    if len(inspect.signature(environment.step).parameters) != 2:
        raise CanaryError(
            f"step of {name} does not take (state, action), so it is no environment of Brax's kind."
        )
    cost = "info:cost" if cost == "info" else cost
    if not (isinstance(cost, str) and cost.startswith(METRICS)):
        cost_reader(cost)  # a mistake in it is found now
    known = {**arguments, "observation": observation}
    return BraxEnvironment(name, environment, cost, checked_horizon(horizon, name), known)
