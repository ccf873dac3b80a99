"""Shapes and types of an environment, found by tracing: nothing is computed and nothing compiled."""

import inspect
import math
import re
from collections.abc import Iterable, Iterator, Sequence
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
from canary.values import LARGEST_INTEGER

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
    if found := list(_members(environment)):
        return found
    try:
        settings_of(environment)
    except CanaryError as mistake:
        found.append(error("settings", str(mistake)))
    if isinstance(
        environment, GymnasiumEnvironment
    ):  # nothing to trace; playing it shows its mistakes
        return found
    space, key = environment.action_space, jax.random.key(0)
    shape, kind = ((), jnp.int32) if isinstance(space, Discrete) else ((space.size,), jnp.float32)
    action = jax.ShapeDtypeStruct(shape, kind)
    reset, problems = _traced(environment, "reset", key)
    if found := found + problems:
        return found
    step, found = _traced(environment, "step", reset, action, key)
    found = found or _differences(environment, reset, step)
    if not found and environment.horizon > 1 and _is_endless(environment, reset, action, key):
        text = (
            f"step() of {name_of_environment(environment)} does not end an episode at its horizon; "
            "write truncated = (time >= horizon) & ~terminated."
        )
        found.append(error("truncated", text))
    for method, arguments in (("reset", (key,)), ("step", (reset, action, key))):
        if step is not None and _is_frozen(getattr(environment, method), arguments):
            name = name_of_environment(environment)
            text = (
                f"{method}() of {name} draws random numbers without its key (np.random or random): "
                "they are drawn once, while the program is made, and stay the same for ever; use "
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
    name = environment.__name__ if inspect.isclass(environment) else type(environment).__name__
    if inspect.isclass(environment):
        yield error("environment", f"{name} is a class; pass an instance of it: {name}().")
        return
    if missing := [member for member in MEMBERS if not hasattr(environment, member)]:
        advice = (
            "; it looks like a Gymnasium environment: use canary.environments.from_gymnasium"
            if hasattr(environment, "observation_space")
            else " (docs/environments/your-own.md)"
        )
        text = f"{name} is not an environment: it has no {', no '.join(missing)}{advice}."
        yield error("environment", text)
        return
    for member in ("horizon", "observation_size"):
        if not _is_size(value := getattr(environment, member)):
            text = f"The {member} of {name} must be a positive whole number, not {value!r}."
            yield error(member, text)
    field, value = "normalise_observation", environment.normalise_observation
    if not isinstance(value, bool):
        yield error(field, f"{field} of {name} must be True or False, not {value!r}.")
    space = environment.action_space
    if not isinstance(space, Discrete | Continuous):
        module, kind = type(space).__module__, type(space).__name__
        shown = f"{module.split('.')[0]}'s {kind}" if "gym" in module else repr(space)
        text = f"is {shown}; it must be canary.Discrete(count) or canary.Continuous(size)."
        yield error("action_space", f"The action_space of {name} {text}")
    elif not _is_size(space.count if isinstance(space, Discrete) else space.size):
        text = f"The action_space of {name} is {space!r}; its size must be positive."
        yield error("action_space", text)


def _is_size(value: Any) -> bool:
    whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    return whole and 1 <= int(value) <= LARGEST_INTEGER


def _traced(environment: Environment, method: str, *arguments: Any) -> tuple[Any, list[Finding]]:
    """The shapes of what a method returns, and what is wrong with it; None if it fails."""
    name = name_of_environment(environment)
    try:
        state = jax.eval_shape(getattr(environment, method), *arguments)
    except CanaryError as mistake:
        return None, [error(method, str(mistake))]
    except Exception as failure:
        text, kind = describe(failure), type(failure).__name__
        short = re.sub(r"(See https\S*|The error occurred while tracing.*)", "", text)[:300].strip()
        hint = (
            " It must be written with jax.numpy and jax.lax: `if`, float() and numpy cannot act on "
            "traced values"
            if "Tracer" in kind or "Concretization" in kind
            else ""
        )
        return None, [error(method, f"{method}() of {name} failed: {short}.{hint}")]
    if not isinstance(state, EnvironmentState):
        kind = f"a {type(state).__name__}"
        kind = f"a tuple of {len(state)}" if isinstance(state, tuple) else kind
        text = f"{method}() of {name} returned {kind}; it must return a canary.EnvironmentState."
        return state, [error(method, text)]
    return state, list(_fields(environment, method, state))


def _fields(environment: Environment, method: str, state: EnvironmentState) -> Iterator[Finding]:
    for field, kind in TYPES.items():
        leaf, size = getattr(state, field), environment.observation_size
        dtype, shape = jax.dtypes.result_type(leaf), jnp.shape(leaf)
        expected = (size,) if field == "observation" else ()
        fits = jnp.issubdtype(dtype, jnp.integer) if field == "time" else dtype == kind
        is_vector = field == "cost" and len(shape) == 1 and shape[0] > 1  # several costs
        if not fits or not (shape == expected or is_vector):
            found = f"The {field} of {method}() is {dtype} of shape {shape}"
            rules = {
                "observation": f" (observation_size says {size})",
                "cost": ", or a vector of several costs",
            }
            rule = rules.get(field, "")
            text = f"{found}; it must be {jnp.dtype(kind).name} of shape {expected}{rule}."
            yield error(field, text)


def _differences(environment: Environment, reset: Any, step: Any) -> list[Finding]:
    """Where the states after a reset and after a step have not the same shapes and types."""
    before, after = (
        {
            jax.tree_util.keystr(path).lstrip("."): f"{leaf.dtype} of shape {leaf.shape}"
            for path, leaf in jax.tree_util.tree_leaves_with_path(state)
        }
        for state in (reset, step)
    )
    name = name_of_environment(environment)
    found = [
        error(
            field,
            f"{field} of {name} is {before.get(field, 'missing')} after reset() but "
            f"{after.get(field, 'missing')} after step(); both must be the same.",
        )
        for field in sorted(before.keys() | after.keys())
        if before.get(field) != after.get(field)
    ]
    if not found and jax.tree.structure(reset) != jax.tree.structure(step):
        text = f"The states that reset() and step() of {name} return have different structures."
        found.append(error("inner", text))
    return found


def _is_endless(environment: Environment, reset: Any, action: Any, key: Any) -> bool:
    """Whether `truncated` is a constant and `terminated` does not look at the time."""

    def flags(*given: Any) -> tuple[Any, Any]:
        after = environment.step(*given)
        return after.terminated, after.truncated

    program = jax.make_jaxpr(flags)(reset, action, key).jaxpr
    paths = [jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_leaves_with_path(reset)]
    time, truncated = (program.invars[paths.index(path)] for path in (".time", ".truncated"))

    def reached(sources: Iterable[Any]) -> set[int]:
        found = {id(source) for source in sources}
        for equation in program.eqns:
            if any(id(given) in found for given in equation.invars):
                found.update(map(id, equation.outvars))
        return found

    others = [given for given in program.invars if given is not truncated]
    ended, cut = map(id, program.outvars)
    return ended not in reached([time]) and cut not in reached(others)


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
