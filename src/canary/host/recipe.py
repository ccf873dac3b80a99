"""How a Gymnasium environment is made, and where the cost of a step comes from."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from canary.errors import CanaryError
from canary.host.references import describe, label_of, look_up, looks_up

GYMNASIUM = "gymnasium:"
INFO = "info:"
SIX_VALUES = "safety-gymnasium"

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


def make_environment(recipe: Recipe) -> Any:
    """The environment of a recipe; a sentence if it cannot be made, or is not one environment."""
    try:
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
