"""Check shapes and types of an environment by tracing, without computing or compiling."""

import math
from typing import Any

import jax
import jax.numpy as jnp

from canary.environments.gymnasium_environment import GymnasiumEnvironment
from canary.environments.protocol import (
    Continuous,
    Discrete,
    Environment,
    EnvironmentState,
    name_of_environment,
    settings_of,
)
from canary.errors import CanaryError
from canary.host.references import describe
from canary.values import Count, convert

MEMBERS = ("horizon", "observation_size", "action_space", "normalise_observation", "reset", "step")


def check_structure(environment: Any) -> None:
    """Raise on the first mistake in the members, the settings, or the results of `reset` and
    `step`."""
    _check_members(environment)
    if isinstance(environment, GymnasiumEnvironment):  # its other mistakes show in play
        return
    space, key = environment.action_space, jax.random.key(0)
    shape, kind = ((), jnp.int32) if isinstance(space, Discrete) else ((space.size,), jnp.float32)
    reset = _returned(environment, "reset", key)
    _check_fields(environment.observation_size, reset)
    step = _returned(environment, "step", reset, jax.ShapeDtypeStruct(shape, kind), key)
    before, after = map(_shapes, (reset, step))
    for field in sorted(before.keys() | after.keys()):
        first, second = before.get(field, "missing"), after.get(field, "missing")
        if first != second:
            raise CanaryError(
                f"The {field} of {name_of_environment(environment)} is {first} after reset() but "
                f"{second} after step(); both must be the same."
            )


def costs_of(environment: Environment) -> int:
    """Number of costs of a step; environments on the host have one."""
    if isinstance(environment, GymnasiumEnvironment):
        return 1
    return math.prod(jax.eval_shape(environment.reset, jax.random.key(0)).cost.shape)


def _check_members(environment: Any) -> None:
    if isinstance(environment, type):
        name = environment.__name__
        raise CanaryError(f"{name} is a class; pass an instance of it: {name}().")
    name = type(environment).__name__
    if missing := [member for member in MEMBERS if not hasattr(environment, member)]:
        advice = " (docs/environments/your-own.md)"
        if hasattr(environment, "observation_space"):
            advice = (
                "; it looks like a Gymnasium environment: use canary.environments.from_gymnasium"
            )
        raise CanaryError(
            f"{name} is not an environment: it has no {', no '.join(missing)}{advice}."
        )
    space = environment.action_space
    if not isinstance(space, Discrete | Continuous):
        raise CanaryError(
            f"The action_space of {name} is {type(space).__module__.partition('.')[0]}'s "
            f"{type(space).__name__}; it must be canary.Discrete(count) or canary.Continuous(size)."
        )
    settings_of(environment)
    size = space.count if isinstance(space, Discrete) else space.size
    convert(Count, size, f"The action_space of {name}")
    for member, kind in {
        "horizon": Count,
        "observation_size": Count,
        "normalise_observation": bool,
    }.items():
        convert(kind, getattr(environment, member), f"The {member} of {name}")


def _returned(environment: Environment, method: str, *given: Any) -> EnvironmentState:
    """The shapes of a method's result."""
    place = f"{method}() of {name_of_environment(environment)}"
    try:
        state = jax.eval_shape(getattr(environment, method), *given)
    except CanaryError:
        raise
    except Exception as failure:
        hint = ""
        if isinstance(failure, jax.errors.JAXTypeError):
            hint = (
                " It must be written with jax.numpy and jax.lax: `if`, float() and numpy cannot act "
                "on traced values."
            )
        raise CanaryError(f"{place} failed: {describe(failure):.300}.{hint}") from None
    if not isinstance(state, EnvironmentState):
        kind = f"tuple of {len(state)}" if isinstance(state, tuple) else type(state).__name__
        raise CanaryError(f"{place} returned a {kind}; it must return a canary.EnvironmentState.")
    return state


def _check_fields(size: int, state: EnvironmentState) -> None:
    kinds = {"observation": jnp.float32, "reward": jnp.float32, "cost": jnp.float32}
    kinds |= {"terminated": jnp.bool_, "truncated": jnp.bool_, "time": jnp.int32}
    for field, kind in kinds.items():
        leaf = getattr(state, field)
        if not jax.tree_util.all_leaves([leaf]):
            found = type(leaf).__name__
            raise CanaryError(f"The {field} of reset() is a {found}; it must be a single array.")
        dtype, shape = jax.dtypes.result_type(leaf), jnp.shape(leaf)
        expected = (size,) if field == "observation" else ()
        fits = jnp.issubdtype(dtype, jnp.integer) if field == "time" else dtype == kind
        is_vector = field == "cost" and len(shape) == 1 and shape[0] > 1  # several costs
        if not fits or not (shape == expected or is_vector):
            rule = f" (observation_size says {size})" if field == "observation" else ""
            raise CanaryError(
                f"The {field} of reset() is {dtype} of shape {shape}; it must be "
                f"{jnp.dtype(kind).name} of shape {expected}{rule}."
            )


def _shapes(state: EnvironmentState) -> dict[str, str]:
    return {
        jax.tree_util.keystr(path).lstrip("."): f"{leaf.dtype} of shape {leaf.shape}"
        for path, leaf in jax.tree_util.tree_leaves_with_path(state)
    }
