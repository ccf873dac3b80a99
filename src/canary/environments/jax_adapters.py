"""What the adapters to JAX environments of other packages share: where the cost is, and what an
action means."""

import importlib
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from canary.environments.protocol import ActionSpace, Continuous, Discrete, check_count
from canary.errors import CanaryError
from canary.host.references import look_up, looks_up

INFO = "info:"
Cost = Callable[[Any, Any, Any, Any], Any]
"""cost(observation, action, next_observation, info), in jax.numpy."""


def cost_reader(cost: Any, name: str) -> Cost:
    """A function from what `cost=` says: itself, `info:KEY`, or `package.module:function`."""
    if callable(cost):
        return cost
    if isinstance(cost, str) and cost in ("info", INFO):
        cost = f"{INFO}cost"
    if isinstance(cost, str) and cost.startswith(INFO):
        key = cost.removeprefix(INFO)

        def read(before: Any, action: Any, after: Any, info: Any) -> Any:
            del before, action, after
            if key not in info:
                raise CanaryError(
                    f"info of {name} has no {key!r} to take the cost from; it has "
                    f"{', '.join(map(str, info)) or 'nothing'}. "
                    "Say where the cost is: cost=function or cost='info:KEY'."
                )
            return info[key]

        return read
    if isinstance(cost, str) and looks_up(cost):
        return look_up(cost)
    raise CanaryError(
        f"cost must be a function, 'info:KEY' or 'package.module:function', not {cost!r}."
    )


def scalar(value: Any) -> Float[Array, ""]:
    """One float32 number; a vector of one number is that number."""
    return jnp.asarray(value, jnp.float32).reshape(())


def action_mapping(space: Any, name: str) -> tuple[ActionSpace, Callable[[Array], Array]]:
    """Our space and the map from its actions to those of a Box or Discrete space of another
    package."""
    if hasattr(space, "n"):
        return Discrete(int(space.n)), lambda action: action
    if not hasattr(space, "low"):
        raise CanaryError(
            f"The action space of {name} is {space}; canary acts in Discrete and Box spaces."
        )
    low = np.broadcast_to(np.asarray(space.low, np.float32), space.shape)
    high = np.broadcast_to(np.asarray(space.high, np.float32), space.shape)
    if not (np.isfinite(low).all() and np.isfinite(high).all()):
        raise CanaryError(
            f"The action space of {name} has no finite bounds, so [-1, 1] cannot be stretched to "
            "them."
        )
    middle, half = (high + low) / 2, (high - low) / 2

    def stretch(action: Array) -> Array:
        return jnp.asarray(middle) + jnp.asarray(half) * jnp.clip(
            action.reshape(space.shape), -1.0, 1.0
        )

    return Continuous(int(np.prod(space.shape))), stretch


def require(module: str, why: str) -> Any:
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise CanaryError(f"{why} needs the package {error.name}; install it.") from None


def like(values: Any, template: Any, name: str) -> Any:
    """`values` with the types of `template`: other packages mix Python numbers and arrays in what
    reset returns."""
    if jax.tree.structure(values) != jax.tree.structure(template):
        raise CanaryError(
            f"The states that reset and step of {name} return are not built alike, so a program "
            "cannot carry them."
        )
    return jax.tree.map(lambda value, target: jnp.asarray(value, target.dtype), values, template)


def checked_horizon(horizon: Any, name: str) -> int:
    if horizon is None:
        raise CanaryError(
            f"{name} does not say after how many steps an episode is cut off; say it with "
            "horizon=..."
        )
    check_count(name, "horizon", horizon)
    return int(horizon)
