"""One Gymnasium environment: make it, describe its spaces as plain data, and step it with its cost.

In training and in exported policies, `exporting/numpy_policy.py` converts observations and actions by
the description of the spaces, with numpy alone.
"""

import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from canary.errors import CanaryError
from canary.host.references import describe, label_of, look_up, looks_up

GYMNASIUM = "gymnasium:"
INFO = "info:"
SIX_VALUES = "safety-gymnasium"

Cost = Callable[[Any, Any, Any, dict[str, Any]], Any]
"""cost(observation, action, next_observation, info), all in the form of the environment."""

_making = threading.Lock()  # registries of environments are not thread-safe


@dataclass(frozen=True)
class Recipe:
    """How to make an environment, and where its cost is."""

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


class Player:
    """A live environment, closed when its player is garbage-collected. Actions and observations are
    in the form of the environment."""

    def __init__(self, recipe: Recipe):
        self.environment = environment = make_environment(recipe)
        weakref.finalize(self, getattr(environment, "close", lambda: None))
        spaces = environment.observation_space, environment.action_space
        self.interface = describe_spaces(*spaces, recipe.label)
        self.steps = 0  # of the current episode, including the present one
        self._cost = None if recipe.cost == SIX_VALUES else cost_reader(recipe.cost)
        self._values = 6 if self._cost is None else 5
        self._step = environment.step  # the lookup takes as long as a small step

    def reset(self, seed: int) -> tuple[Any, ...]:
        self.steps = 0
        answer = self.environment.reset(seed=seed)
        if not isinstance(answer, tuple) or len(answer) != 2:
            raise CanaryError("reset() must return two values, the observation and info")
        self._seen = answer[0]
        return self._seen, 0.0, 0.0, False, False

    def step(self, action: Any) -> tuple[Any, ...]:
        """Observation, reward, cost, terminated, truncated."""
        self.steps += 1
        answer = self._step(action)
        if len(answer) != self._values:
            raise CanaryError(
                f"step() returned {len(answer)} values, not {self._values}; cost='{SIX_VALUES}' is "
                "for environments whose step returns six, with the cost third"
            )
        if self._cost is None:
            seen, reward, cost, terminated, truncated, _ = answer
        else:
            seen, reward, terminated, truncated, info = answer
            cost = self._cost(self._seen, action, seen, info)
        self._seen = seen
        try:
            return seen, float(reward), float(cost), bool(terminated), bool(truncated)
        except (TypeError, ValueError):
            raise CanaryError(
                f"the reward is {reward!r} and the cost {cost!r}; both must be numbers"
            ) from None


def make_environment(recipe: Recipe) -> Any:
    """The environment of a recipe; raises if it cannot be made or is not a single environment."""
    try:
        with _making:
            environment = _factory(recipe.make)(**recipe.arguments)
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


def _factory(make: str | Callable[..., Any]) -> Callable[..., Any]:
    """The function that makes an environment from the arguments."""
    if callable(make):
        return make
    if not make.startswith(GYMNASIUM):
        return look_up(make)
    try:
        import gymnasium
    except ModuleNotFoundError:
        raise CanaryError(
            f"{make} needs the package gymnasium; install canary-rl[gymnasium]."
        ) from None
    name = make.removeprefix(GYMNASIUM)

    def by_id(**arguments: Any) -> Any:
        try:  # canary checks the environment itself
            return gymnasium.make(name, **{"disable_env_checker": True, **arguments})
        except gymnasium.error.UnregisteredEnv as error:
            raise CanaryError(f"Gymnasium knows no environment {name!r} ({error}).") from None

    return by_id


def cost_reader(cost: Any, source: str = "info") -> Cost:
    """The cost as a function: `cost` is one, `info:KEY`, or `package.module:function`."""
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


def describe_spaces(observation_space: Any, action_space: Any, label: str) -> dict[str, Any]:
    """`observation` lists the sources of a row's entries, in order. `action` describes the
    conversion of a policy's action: a continuous one is clipped to [-1, 1] and scaled to the bounds
    of the Box. Spaces are recognised by class name, so that spaces of older packages work too."""
    kind = type(action_space).__name__
    dtype = np.dtype(getattr(action_space, "dtype", None) or np.int64)
    if kind == "Discrete":
        start = int(getattr(action_space, "start", 0))
        action: dict[str, Any] = {"kind": "counted", "start": start, "dtype": dtype.name}
        return {"observation": _entries(observation_space, [], label), "action": action}
    if kind != "Box" or not np.issubdtype(dtype, np.floating):
        raise CanaryError(
            f"The action space of {label} is {action_space}; canary acts in Discrete and real-valued "
            "Box spaces. Wrap the environment so that it has one of these."
        )
    low, high = (np.asarray(getattr(action_space, name), float).ravel() for name in ("low", "high"))
    if not (np.isfinite(low).all() and np.isfinite(high).all()):
        raise CanaryError(
            f"The action space of {label} has no finite bounds, so [-1, 1] cannot be stretched to "
            "them; state them: gymnasium.wrappers.TransformAction(env, lambda action: action, "
            "gymnasium.spaces.Box(LOW, HIGH, env.action_space.shape)), with numbers of yours."
        )
    action = {"kind": "numbers", "clip": [-1.0, 1.0], "low": low.tolist(), "high": high.tolist()}
    action |= {"shape": list(action_space.shape), "dtype": dtype.name}
    action["rule"] = "(high + low) / 2 + (high - low) / 2 * clip(action, -1, 1)"
    return {"observation": _entries(observation_space, [], label), "action": action}


def _entries(space: Any, path: list[str | int], label: str) -> list[dict[str, Any]]:
    """The groups of a row's entries; `path` locates each in an observation. A group is plain
    numbers, or counted ones (with a first value and a number of values), which become one-hot."""
    kinds = {kind.__name__ for kind in type(space).__mro__}
    if kinds & {"Box", "MultiBinary"}:
        return [{"path": path, "kind": "numbers", "size": int(np.prod(space.shape))}]
    if kinds & {"Discrete", "MultiDiscrete"}:
        counts = np.ravel(space.n if "Discrete" in kinds else space.nvec).astype(int)
        starts = np.broadcast_to(np.ravel(getattr(space, "start", 0)), counts.shape).astype(int)
        values = [list(pair) for pair in zip(starts.tolist(), counts.tolist(), strict=True)]
        return [{"path": path, "kind": "counted", "values": values, "size": int(counts.sum())}]
    if kinds & {"Dict", "Tuple"}:
        parts = dict(space.spaces if "Dict" in kinds else enumerate(space.spaces))
        if all(isinstance(key, str | int) for key in parts):
            nested = [_entries(part, [*path, key], label) for key, part in parts.items()]
            return [entry for entries in nested for entry in entries]
    raise CanaryError(
        f"canary cannot read an observation of {label} as numbers ({space}); flatten it: "
        "gymnasium.wrappers.FlattenObservation(env)."
    )
