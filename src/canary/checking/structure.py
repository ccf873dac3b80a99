"""Shapes and types of an environment, found by tracing: nothing is computed and nothing compiled."""

import inspect
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

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
TYPES = {
    "observation": jnp.float32,
    "reward": jnp.float32,
    "cost": jnp.float32,
    "terminated": jnp.bool_,
    "truncated": jnp.bool_,
    "time": jnp.int32,
}


@dataclass(frozen=True)
class Finding:
    """An error makes training wrong or impossible; a warning is likely a mistake; a note is worth
    knowing."""

    level: Literal["error", "warning", "note"]
    field: str
    text: str


def error(field: str, text: str) -> Finding:
    return Finding("error", field, text)


def raise_first_error(findings: Sequence[Finding]) -> None:
    """Raise the sentence of the first error, and say if there are more."""
    errors = [finding.text for finding in findings if finding.level == "error"]
    if errors:
        more = f" (and {len(errors) - 1} more: `canary check-env` lists them)" if errors[1:] else ""
        raise CanaryError(f"{errors[0].removesuffix('.')}{more}.")


def check_structure(environment: Any) -> list[Finding]:
    """All that is wrong with the members, the settings, and what `reset` and `step` return."""
    found = list(_members(environment))
    if found or isinstance(environment, GymnasiumEnvironment):  # playing that shows its mistakes
        return found
    space, key = environment.action_space, jax.random.key(0)
    shape, kind = ((), jnp.int32) if isinstance(space, Discrete) else ((space.size,), jnp.float32)
    action = jax.ShapeDtypeStruct(shape, kind)
    reset = _traced(environment, "reset", key)
    if isinstance(reset, Finding):
        return [reset]
    if found := list(_fields(environment, reset)):
        return found
    step = _traced(environment, "step", reset, action, key)
    if isinstance(step, Finding):
        return [step]
    if found := list(_differences(environment, reset, step)):
        return found
    for method, arguments in (("reset", (key,)), ("step", (reset, action, key))):
        if _is_frozen(getattr(environment, method), arguments):
            text = (
                f"{method}() of {name_of_environment(environment)} draws random numbers without its "
                "key: they are drawn once, while the program is made, and never change; use "
                "jax.random with the key."
            )
            found.append(error(method, text))
    return found


def costs_of(environment: Environment) -> int:
    """How many costs a step has; those on the host have one."""
    if isinstance(environment, GymnasiumEnvironment):
        return 1
    return math.prod(jax.eval_shape(environment.reset, jax.random.key(0)).cost.shape)


def _members(environment: Any) -> Iterator[Finding]:
    if inspect.isclass(environment):
        name = environment.__name__
        yield error("environment", f"{name} is a class; pass an instance of it: {name}().")
        return
    name = type(environment).__name__
    if missing := [member for member in MEMBERS if not hasattr(environment, member)]:
        advice = (
            "; it looks like a Gymnasium environment: use canary.environments.from_gymnasium"
            if hasattr(environment, "observation_space")
            else " (docs/environments/your-own.md)"
        )
        text = f"{name} is not an environment: it has no {', no '.join(missing)}{advice}."
        yield error("environment", text)
        return
    space = environment.action_space
    if not isinstance(space, Discrete | Continuous):
        kind = f"{type(space).__module__.partition('.')[0]}'s {type(space).__name__}"
        text = f"is {kind}; it must be canary.Discrete(count) or canary.Continuous(size)."
        yield error("action_space", f"The action_space of {name} {text}")
        return
    members = [
        ("horizon", environment.horizon, Count),
        ("observation_size", environment.observation_size, Count),
        ("normalise_observation", environment.normalise_observation, bool),
        ("action_space", space.count if isinstance(space, Discrete) else space.size, Count),
    ]
    for member, value, kind in members:
        try:
            convert(kind, value, f"The {member} of {name}")
        except CanaryError as mistake:
            yield error(member, str(mistake))
    try:
        settings_of(environment)
    except CanaryError as mistake:
        yield error("settings", str(mistake))


def _traced(environment: Environment, method: str, *arguments: Any) -> EnvironmentState | Finding:
    """The shapes of what a method returns, or what is wrong with it."""
    name = name_of_environment(environment)
    try:
        state = jax.eval_shape(getattr(environment, method), *arguments)
    except CanaryError as mistake:
        return error(method, str(mistake))
    except Exception as failure:
        hint = (
            " It must be written with jax.numpy and jax.lax: `if`, float() and numpy cannot act on "
            "traced values"
            if isinstance(failure, jax.errors.JAXTypeError)
            else ""
        )
        return error(method, f"{method}() of {name} failed: {describe(failure):.300}.{hint}")
    if not isinstance(state, EnvironmentState):
        kind = f"tuple of {len(state)}" if isinstance(state, tuple) else type(state).__name__
        text = f"{method}() of {name} returned a {kind}; it must return a canary.EnvironmentState."
        return error(method, text)
    return state


def _fields(environment: Environment, state: EnvironmentState) -> Iterator[Finding]:
    for field, kind in TYPES.items():
        leaf, size = getattr(state, field), environment.observation_size
        dtype, shape = jax.dtypes.result_type(leaf), jnp.shape(leaf)
        expected = (size,) if field == "observation" else ()
        fits = jnp.issubdtype(dtype, jnp.integer) if field == "time" else dtype == kind
        is_vector = field == "cost" and len(shape) == 1 and shape[0] > 1  # several costs
        if not fits or not (shape == expected or is_vector):
            rule = f" (observation_size says {size})" if field == "observation" else ""
            text = (
                f"The {field} of reset() is {dtype} of shape {shape}; it must be "
                f"{jnp.dtype(kind).name} of shape {expected}{rule}."
            )
            yield error(field, text)


def _differences(environment: Environment, reset: Any, step: Any) -> Iterator[Finding]:
    """Where the states after a reset and after a step differ in shape or type."""
    before, after = (
        {
            jax.tree_util.keystr(path).lstrip("."): f"{leaf.dtype} of shape {leaf.shape}"
            for path, leaf in jax.tree_util.tree_leaves_with_path(state)
        }
        for state in (reset, step)
    )
    for field in sorted(before.keys() | after.keys()):
        first, second = before.get(field, "missing"), after.get(field, "missing")
        if first != second:
            text = (
                f"{field} of {name_of_environment(environment)} is {first} after reset() but "
                f"{second} after step(); both must be the same."
            )
            yield error(field, text)


def _is_frozen(method: Any, arguments: tuple[Any, ...]) -> bool:
    """Whether two tracings differ: randomness without a key is drawn while tracing."""

    def program() -> str:
        closed = jax.make_jaxpr(lambda *given: method(*given))(*arguments)
        constants = [
            np.asarray(value).tobytes()
            for value in closed.consts
            if not jax.dtypes.issubdtype(jax.dtypes.result_type(value), jax.dtypes.prng_key)
        ]
        return re.sub(r"0x[0-9a-f]+", "", str(closed.jaxpr)) + repr(constants)

    return program() != program()
