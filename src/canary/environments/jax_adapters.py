"""What the adapters to JAX environments of other packages share."""

import importlib
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from canary.environments.protocol import ActionSpace, Continuous, Discrete, check_count
from canary.errors import CanaryError
from canary.host.player import Cost
from canary.host.references import label_of, name_of


@dataclass(frozen=True, eq=False)
class Adapted:
    """An environment of another package, in JAX, and how it was made."""

    name: str
    foreign: Any
    cost: str | Cost
    horizon: int
    arguments: dict[str, Any]

    packages: ClassVar[Collection[str]] = ()
    """The prefixes of names that another process can make it by."""

    def settings(self) -> dict[str, Any]:
        return {**self.arguments, "horizon": self.horizon, "cost": label_of(self.cost)}

    def source(self) -> dict[str, Any] | None:
        """How another process makes it: name, arguments and cost; None if it cannot."""
        cost = self.cost if isinstance(self.cost, str) else name_of(self.cost)
        if cost is None or self.name.partition(":")[0] not in self.packages:
            return None
        arguments = {**self.arguments, "horizon": self.horizon}
        return {"name": self.name, "arguments": arguments, "cost": cost}


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
