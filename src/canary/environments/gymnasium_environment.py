"""Gymnasium environments, which a Python loop steps outside JAX (`canary.host_loop`).

    environment = from_gymnasium("Pendulum-v1", cost=speeding)

The state of an episode is the seed of its reset and the actions since, which checkpoints store.
Live environments are a cache of this state (`canary.host.episodes`).
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NoReturn

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key, UInt32

from canary.environments.protocol import ActionSpace, Continuous, Discrete, EnvironmentState
from canary.errors import CanaryError
from canary.host.episodes import COST, REWARD, TERMINATED, TIME, TRUNCATED, Episodes
from canary.host.player import GYMNASIUM, Cost, Player, Recipe
from canary.host.references import label_of, looks_up, name_of
from canary.values import Count, convert


def draw_identities(keys: Key[Array, "*batch"]) -> UInt32[Array, "*batch 2"]:
    """The identity of an episode, drawn from the key of its reset."""
    bits = jax.vmap(lambda key: jax.random.bits(key, (2,), jnp.uint32))(keys.reshape(-1))
    return bits.reshape(*keys.shape, 2)


def states_of(table: Float[Array, "*batch column"]) -> EnvironmentState:
    """The states in a table of `Episodes`."""
    return EnvironmentState(
        inner=None,
        observation=table[..., :REWARD],
        reward=table[..., REWARD],
        cost=table[..., COST],
        terminated=table[..., TERMINATED] > 0,
        truncated=table[..., TRUNCATED] > 0,
        time=table[..., TIME].astype(jnp.int32),
    )


class GymnasiumEnvironment:
    """Made by `from_gymnasium`, which explains the arguments."""

    drawing = "canary.rendering.gymnasium_environment:draw"

    def __init__(self, recipe: Recipe):
        self.recipe, self.name, player = recipe, recipe.label, Player(recipe)
        first, self.policy_interface = player.environment, player.interface
        self.observation_size = sum(each["size"] for each in player.interface["observation"])
        seen, space = first.observation_space, first.action_space
        spec = getattr(first, "spec", None)
        self.normalise_observation = type(seen).__name__ != "Discrete"
        is_counted = type(space).__name__ == "Discrete"
        size = 1 if is_counted else int(np.prod(space.shape))
        self.action_space: ActionSpace = Discrete(int(space.n)) if is_counted else Continuous(size)
        self.horizon = int(recipe.horizon or getattr(spec, "max_episode_steps", None) or 0)
        if not self.horizon:
            raise CanaryError(
                f"{self.name} does not say after how many steps an episode is cut off "
                "(spec.max_episode_steps); say it with horizon=..., or --set env.horizon=N."
            )
        self.sizes = self.observation_size, self.horizon, size

    def episodes(self, lanes: int) -> Episodes:
        """`lanes` live environments, which close when they are garbage-collected."""
        return Episodes(self.recipe, lanes, self.sizes)

    def reset(self, key: Any) -> NoReturn:
        raise CanaryError(f"{self.name} lives outside JAX; only canary's own loops step it.")

    def step(self, state: Any, action: Any, key: Any) -> NoReturn:
        self.reset(key)

    def settings(self) -> dict[str, Any]:
        """The arguments of the environment, its horizon, and the name of its cost."""
        return {
            **self.recipe.arguments,
            "horizon": self.horizon,
            "cost": label_of(self.recipe.cost),
        }

    def source(self) -> dict[str, Any] | None:
        """Name, arguments and cost for another process; None if it cannot import them."""
        recipe = self.recipe
        make, cost = (
            each if isinstance(each, str) else name_of(each) for each in (recipe.make, recipe.cost)
        )
        try:
            arguments = json.loads(json.dumps(recipe.arguments))
        except TypeError:
            return None
        if make is None or cost is None:
            return None
        arguments |= {"horizon": recipe.horizon} if recipe.horizon else {}
        return {
            "name": GYMNASIUM + make.removeprefix(GYMNASIUM),
            "arguments": arguments,
            "cost": cost,
        }

    def with_settings(self, changes: Mapping[str, Any]) -> "GymnasiumEnvironment":
        """The same environment with other arguments."""
        arguments = {**self.recipe.arguments, **changes}
        horizon = arguments.pop("horizon", self.recipe.horizon)
        recipe = replace(self.recipe, arguments=arguments, horizon=horizon)
        return GymnasiumEnvironment(recipe)


def from_gymnasium(
    make: str | Callable[..., Any],
    cost: str | Cost = "info:cost",
    *,
    horizon: int | None = None,
    **arguments: Any,
) -> GymnasiumEnvironment:
    """A Gymnasium environment for training, evaluation and certification.

    `make` is an id such as "Pendulum-v1", a name such as "my_package.shop:make", or a function that
    makes one environment; `arguments` are passed to it. The cost of a step is `cost(observation,
    action, next_observation, info)`; or "info:KEY", which is info[KEY]; or "safety-gymnasium",
    whose step returns it as the third of six values. `horizon` cuts episodes off; the default is
    the environment's own limit.
    """
    if isinstance(make, str):
        make = make.removeprefix(GYMNASIUM)
        make = make if looks_up(make) else GYMNASIUM + make
    if not (isinstance(make, str) or callable(make)):
        raise CanaryError(
            f"make must be an id, a name or a function that makes one environment, not {make!r}."
        )
    horizon = convert(Count | None, horizon, "horizon")
    return GymnasiumEnvironment(Recipe(make, dict(arguments), cost, horizon))
