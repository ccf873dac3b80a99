"""Shapes and types of an environment, found by tracing it: nothing is computed and nothing
compiled."""

import inspect
import re
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from canary.checking.findings import Finding, error
from canary.environments.host_environment import HostEnvironment
from canary.environments.protocol import (
    Continuous,
    Discrete,
    Environment,
    EnvironmentState,
)
from canary.environments.settings import name_of_environment, settings_of
from canary.errors import CanaryError
from canary.host.references import describe

MEMBERS = ("horizon", "observation_size", "action_space", "normalise_observation", "reset", "step")
SCALARS = {
    "reward": jnp.float32,
    "cost": jnp.float32,
    "terminated": jnp.bool_,
    "truncated": jnp.bool_,
}


def check_structure(environment: Any) -> list[Finding]:
    """All that is wrong with the members, the settings, and what `reset` and `step` return."""
    if found := list(_members(environment)):
        return found
    try:
        settings_of(environment)
    except CanaryError as mistake:
        found.append(error("settings", str(mistake)))
    if isinstance(environment, HostEnvironment):  # nothing to trace; playing it shows its mistakes
        return found
    name, key = name_of_environment(environment), jax.random.key(0)
    reset, problems = _traced(environment, "reset", key)
    if problems:
        return found + problems
    found += _fields(environment, "reset", reset)
    if any(finding.level == "error" for finding in found):
        return found
    action = random_action_like(environment.action_space)
    step, problems = _traced(environment, "step", reset, action, key)
    if problems:
        return found + problems
    found += _fields(environment, "step", step)
    if not found:
        found += _same_structure(name, reset, step)
    return [*found, *_frozen_randomness(environment, reset, action, key)]


def random_action_like(space: Any) -> jax.ShapeDtypeStruct:
    """Shape and type of an action as a policy samples it."""
    if isinstance(space, Discrete):
        return jax.ShapeDtypeStruct((), jnp.int32)
    return jax.ShapeDtypeStruct((space.size,), jnp.float32)


def _members(environment: Any) -> Iterator[Finding]:
    name = environment.__name__ if inspect.isclass(environment) else type(environment).__name__
    if inspect.isclass(environment):
        yield error("environment", f"{name} is a class; pass an instance of it: {name}().")
        return
    if missing := [member for member in MEMBERS if not hasattr(environment, member)]:
        gymnasium = (
            "; it looks like a Gymnasium environment: use canary.environments.from_gymnasium"
            if hasattr(environment, "observation_space")
            else " (docs/environments/your-own.md)"
        )
        yield error(
            "environment",
            f"{name} is not an environment: it has no {', no '.join(missing)}{gymnasium}.",
        )
        return
    for member in ("horizon", "observation_size"):
        value = getattr(environment, member)
        if not _is_size(value):
            yield error(
                member, f"The {member} of {name} must be a positive whole number, not {value!r}."
            )
    field, value = "normalise_observation", environment.normalise_observation
    if not isinstance(value, bool):
        yield error(field, f"{field} of {name} must be True or False, not {value!r}.")
    yield from _space(name, environment.action_space)


def _is_size(value: Any) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool) and int(value) >= 1


def _space(name: str, space: Any) -> Iterator[Finding]:
    if isinstance(space, Discrete | Continuous):
        if not _is_size(space.count if isinstance(space, Discrete) else space.size):
            yield error(
                "action_space",
                f"The action_space of {name} is {space!r}; its size must be positive.",
            )
        return
    module = type(space).__module__
    kind = f"{module.split('.')[0]}'s {type(space).__name__}" if "gym" in module else repr(space)
    yield error(
        "action_space",
        f"The action_space of {name} is {kind}; it must be canary.Discrete(count) or "
        "canary.Continuous(size).",
    )


def _traced(environment: Environment, method: str, *arguments: Any) -> tuple[Any, list[Finding]]:
    try:
        return jax.eval_shape(getattr(environment, method), *arguments), []
    except CanaryError as mistake:
        return None, [error(method, str(mistake))]
    except Exception as failure:
        text = describe(failure)
        short = re.sub(r"(See https\S*|The error occurred while tracing.*)", "", text)[:300].strip()
        hint = (
            " It must be written with jax.numpy and jax.lax: `if`, float() and numpy cannot act on "
            "traced values"
            if "Tracer" in type(failure).__name__ or "Concretization" in type(failure).__name__
            else ""
        )
        name = name_of_environment(environment)
        return None, [error(method, f"{method}() of {name} failed: {short}.{hint}")]


def _fields(environment: Environment, method: str, state: Any) -> Iterator[Finding]:
    """What is wrong with the fields of a returned state."""
    name, size = name_of_environment(environment), environment.observation_size
    if not isinstance(state, EnvironmentState):
        kind = (
            f"a tuple of {len(state)}" if isinstance(state, tuple) else f"a {type(state).__name__}"
        )
        yield error(
            method,
            f"{method}() of {name} returned {kind}; it must return a canary.EnvironmentState.",
        )
        return
    if (shape := jnp.shape(state.observation)) != (size,):
        yield error(
            "observation",
            f"The observation of {method}() has the shape {shape}, but observation_size says "
            f"{size}.",
        )
    kinds = {"observation": jnp.float32, **SCALARS, "time": jnp.int32}
    for field, kind in kinds.items():
        leaf = getattr(state, field)
        shape, dtype = jnp.shape(leaf), jax.dtypes.result_type(leaf)
        if field != "observation" and shape != ():
            yield error(
                field,
                f"The {field} of {method}() has the shape {shape}; it must be a single number, "
                "shape ().",
            )
        fits = jnp.issubdtype(dtype, jnp.integer) if field == "time" else dtype == kind
        if not fits:
            yield error(
                field,
                f"The {field} of {method}() is {dtype}; it must be {jnp.dtype(kind).name}: write "
                f"{field}.astype({'bool' if kind is jnp.bool_ else f'jnp.{jnp.dtype(kind).name}'}).",
            )


def _same_structure(
    name: str, reset: EnvironmentState, step: EnvironmentState
) -> Iterator[Finding]:
    before, after = (
        {
            jax.tree_util.keystr(path).lstrip("."): f"{leaf.dtype} of shape {leaf.shape}"
            for path, leaf in jax.tree_util.tree_leaves_with_path(state)
        }
        for state in (reset, step)
    )
    for field in sorted(before.keys() | after.keys()):
        first, second = (each.get(field, "missing") for each in (before, after))
        if first != second:
            yield error(
                field,
                f"{field} of {name} is {first} after reset() but {second} after step(); both must "
                "be the same.",
            )
    if before == after and jax.tree.structure(reset) != jax.tree.structure(step):
        yield error(
            "inner", f"The states that reset() and step() of {name} return are not built alike."
        )


def _frozen_randomness(environment: Any, reset: Any, action: Any, key: Any) -> Iterator[Finding]:
    """Randomness that does not come from the key is drawn while tracing and frozen: two tracings
    then differ."""
    for method, arguments in (("reset", (key,)), ("step", (reset, action, key))):
        try:
            one, other = (_program(getattr(environment, method), arguments) for _ in range(2))
        except Exception:  # what cannot be traced was reported already
            continue
        if one != other:
            yield error(
                method,
                f"{method}() of {name_of_environment(environment)} draws random numbers without "
                "its key (np.random or random): they are drawn once, while the program is made, "
                "and stay the same for ever; use jax.random with the key.",
            )


def _program(method: Any, arguments: tuple[Any, ...]) -> str:
    """The traced program and its constants as a text, without addresses of Python objects."""
    closed = jax.make_jaxpr(lambda *given: method(*given))(*arguments)
    constants = [np.asarray(value).tobytes() for value in closed.consts if _is_plain(value)]
    return re.sub(r"0x[0-9a-f]+", "", str(closed.jaxpr)) + repr(constants)


def _is_plain(value: Any) -> bool:
    return not jax.dtypes.issubdtype(jax.dtypes.result_type(value), jax.dtypes.prng_key)
