"""One Gymnasium environment: how it is made, and where its cost comes from.

Canary resets every episode itself, with a seed of its own, so an environment's autoreset is never
used.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from jaxtyping import Float

from canary.errors import CanaryError
from canary.export.numpy_policy import environment_action, observation_rows
from canary.host.references import describe, label_of, look_up, looks_up, name_of
from canary.host.spaces import describe_spaces

GYMNASIUM = "gymnasium:"
INFO = "info:"
SIX_VALUES = "safety-gymnasium"
Tail = tuple[float, float, bool, bool]
"""Reward, cost, terminated, truncated."""

Cost = Callable[[Any, Any, Any, dict[str, Any]], Any]
"""cost(observation, action, next_observation, info), all as the environment itself has them."""


@dataclass(frozen=True)
class Recipe:
    """How to make an environment and where its cost comes from."""

    make: str | Callable[..., Any]
    """`gymnasium:ID`, `package.module:Factory`, or a function that returns a Gymnasium
    environment."""
    arguments: dict[str, Any] = field(default_factory=dict)
    cost: str | Cost = "info:cost"
    """`info:KEY`, `safety-gymnasium` (step returns six values), `package.module:function`, or a
    function."""
    horizon: int | None = None

    @property
    def label(self) -> str:
        return label_of(self.make)

    def by_name(self) -> dict[str, Any] | None:
        """The recipe as JSON data; None if another process cannot import what it names."""
        make = self.make if isinstance(self.make, str) else name_of(self.make)
        cost = self.cost if isinstance(self.cost, str) else name_of(self.cost)
        if make is None or cost is None:
            return None
        try:
            arguments = json.loads(json.dumps(self.arguments))
        except TypeError:
            return None
        return {"make": make, "arguments": arguments, "cost": cost}


class Player:
    """An environment that was made by a recipe."""

    def __init__(self, recipe: Recipe):
        self.label, self.environment = recipe.label, _make(recipe)
        self.steps = 0  # of the current episode, with the one under way
        seen, space = self.environment.observation_space, self.environment.action_space
        self.interface = describe_spaces(seen, space, self.label)
        self.observation_size = sum(entry["size"] for entry in self.interface["observation"])
        self.is_physical = type(seen).__name__ != "Discrete"
        self.action_count = int(space.n) if type(space).__name__ == "Discrete" else None
        self.action_size = 1 if self.action_count else int(np.prod(space.shape))
        spec = getattr(self.environment, "spec", None)
        self.horizon = int(recipe.horizon or getattr(spec, "max_episode_steps", None) or 0)
        if not self.horizon:
            raise CanaryError(
                f"{self.label} does not say after how many steps an episode is cut off "
                "(spec.max_episode_steps); say it with horizon=..., or --set env.horizon=N."
            )
        self._cost = None if recipe.cost == SIX_VALUES else cost_reader(recipe.cost)
        self._values = 6 if self._cost is None else 5
        self._before: Any = None
        self._step = self.environment.step  # looking it up takes as long as a small step

    def reset(self, seed: int) -> Any:
        """The first observation of an episode, as the environment itself has it."""
        self.steps = 0
        answer = self.environment.reset(seed=seed)
        if not (isinstance(answer, tuple) and len(answer) == 2):
            raise CanaryError(f"reset() returned {_kind(answer)}, not (observation, info)")
        self._before = answer[0]
        return self._before

    def step(self, action: Any) -> tuple[Any, Tail]:
        """One step; action and observation as the environment itself has them."""
        self.steps += 1
        answer = self._step(action)
        if not (isinstance(answer, tuple) and len(answer) == self._values):
            raise CanaryError(
                f"step() returned {_kind(answer)}, not {self._values}; cost='{SIX_VALUES}' is for "
                "environments whose step returns six, with the cost third"
            )
        if self._cost is not None:
            observation, reward, terminated, truncated, info = answer
            cost = self._cost(self._before, action, observation, info)
        else:
            observation, reward, cost, terminated, truncated, _ = answer
        self._before = observation
        try:
            return observation, (float(reward), float(cost), bool(terminated), bool(truncated))
        except (TypeError, ValueError):
            raise CanaryError(
                f"reward and cost of a step must be numbers, not {reward!r} and {cost!r}"
            ) from None

    def decode(self, rows: Sequence[np.ndarray] | np.ndarray) -> Sequence[Any]:
        """The environment's actions for those of a policy, all at once: a small array takes as long
        to convert as a small step."""
        rows = np.asarray(rows)
        return environment_action(rows[:, 0] if self.action_count else rows, self.interface)

    def encode(self, observations: Sequence[Any]) -> Float[np.ndarray, "row obs"]:
        """Observations of environments like this one as rows."""
        try:
            return observation_rows(observations, self.interface)
        except ValueError as error:
            raise CanaryError(
                f"{self.label} failed: an observation does not fit observation_space. {error}"
            ) from None


def _make(recipe: Recipe) -> Any:
    try:
        environment = factory_of(recipe)(**recipe.arguments)
    except CanaryError:
        raise
    except Exception as error:
        raise CanaryError(f"{recipe.label} could not be made ({describe(error)}).") from error
    if hasattr(environment, "num_envs") and hasattr(environment, "single_observation_space"):
        raise CanaryError(
            f"{recipe.label} makes a vector environment; give a function that makes one "
            "environment: canary makes as many as it needs and steps them together."
        )
    for name in ("reset", "step", "observation_space", "action_space"):
        if not hasattr(environment, name):
            raise CanaryError(
                f"{recipe.label} made a {type(environment).__name__}, which has no {name} and is "
                "no Gymnasium environment."
            )
    return environment


def factory_of(recipe: Recipe) -> Callable[..., Any]:
    """The function that makes an environment from the arguments."""
    if callable(recipe.make):
        return recipe.make
    if not recipe.make.startswith(GYMNASIUM):
        return look_up(recipe.make)
    try:
        import gymnasium
    except ModuleNotFoundError:
        raise CanaryError(
            f"{recipe.make} needs the package gymnasium; install canary-rl[gymnasium]."
        ) from None
    name = recipe.make.removeprefix(GYMNASIUM)

    def make(**arguments: Any) -> Any:
        try:  # canary checks the environment itself
            return gymnasium.make(name, **{"disable_env_checker": True, **arguments})
        except gymnasium.error.UnregisteredEnv as error:
            raise CanaryError(f"Gymnasium knows no environment {name!r} ({error}).") from None

    return make


def cost_reader(cost: Any, source: str = "info") -> Cost:
    """A function from what `cost=` says: itself, `info:KEY`, or `package.module:function`."""
    if callable(cost):
        return cost
    if not (isinstance(cost, str) and (cost.startswith(INFO) or looks_up(cost))):
        raise CanaryError(
            f"cost must be a function, 'info:KEY', '{SIX_VALUES}' (Gymnasium) or "
            f"'package.module:function', not {cost!r}."
        )
    if not cost.startswith(INFO):
        return look_up(cost)
    key = cost.removeprefix(INFO)

    def read(before: Any, action: Any, after: Any, info: Any) -> Any:
        del before, action, after
        if key not in info:
            raise CanaryError(
                f"{source} has no {key!r} to take the cost from; it has "
                f"{', '.join(map(str, info)) or 'nothing'}. "
                "Say where the cost is: cost=function or cost='info:KEY'"
            )
        return info[key]

    return read


def _kind(answer: Any) -> str:
    return f"{len(answer)} values" if isinstance(answer, tuple) else f"a {type(answer).__name__}"
