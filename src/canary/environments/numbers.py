"""The numeric settings of an environment as values that a compiled program gets when it runs.

A program in which `slip = 0.2` is a constant serves no other slip. So `run_time_numbers` takes such
settings out of an environment, the program takes them as an argument, and `with_numbers` puts them
back where the program is traced.

The rule: a field that holds a number, of the environment or of a dataclass in it, is a run-time
value if `reset` and `step` can be traced without knowing it. What they need to know (`if self.rate
> 0`, `range(self.rows)`, `math.sqrt(self.rate)`, a numpy table, a log with a place for every step)
is compiled in, as are texts and switches, the length of a loop, and whole numbers from which a
program would reckon others than Python does (`whole_numbers`). Programs are traced anew for every run and found again by
what was traced, so whatever else an environment derived from its settings, in `__post_init__` for
instance, can never be that of another run. Arithmetic on such settings alone, as in `1 - 2 *
self.slip`, is done in single precision, where Python would have done it in double: a last digit may
differ.

A program with a Python callback in it is kept by no cache, for it holds an address of this process.
So the settings of an environment that brings one are compiled in. One that lives on the host
altogether has its settings there, and a program knows it by its `token` alone: that is the number
which the program gets.
"""

import copy
import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import PRNGKeyArray

from canary.environments.gymnasium_environment import GymnasiumEnvironment
from canary.environments.protocol import Discrete, Environment, PartialReset
from canary.environments.whole_numbers import LARGEST, reckons_exactly

TOKEN = "token"


def run_time_numbers(environment: Environment) -> dict[str, float]:
    """The settings, by their dotted names, that a program can take as an argument."""
    if isinstance(environment, GymnasiumEnvironment):
        return {TOKEN: environment.token}
    numbers = _candidates(environment)
    if not numbers:
        return {}
    try:
        known = _played(environment, {})
    except Exception:  # whoever runs it tells what is wrong with it
        return {}
    if known.calls_back:
        return {}
    if _serves(environment, numbers, known):  # all of them, as nearly always
        return numbers
    return {
        name: number
        for name, number in numbers.items()
        if _serves(environment, {name: number}, known)
    }


def with_numbers(environment: Environment, numbers: Mapping[str, Any]) -> Environment:
    """The environment with these settings, which may be traced: so nothing is checked or computed
    from them here."""
    if not numbers:  # itself, with all that it holds outside the program
        return environment
    changed = copy.copy(environment)
    for name, number in numbers.items():
        holder, *fields = changed, *name.split(".")
        for field in fields[:-1]:
            own = copy.copy(getattr(holder, field))
            object.__setattr__(holder, field, own)
            holder = own
        object.__setattr__(holder, fields[-1], number)
    return changed


def _candidates(holder: Any, prefix: str = "") -> dict[str, float]:
    """The fields of a dataclass, and of dataclasses in it, that hold a number."""
    if not dataclasses.is_dataclass(holder):
        return {}
    numbers = {}
    for field in dataclasses.fields(holder):
        value = getattr(holder, field.name)
        if type(value) is float or (type(value) is int and abs(value) <= LARGEST):
            numbers[prefix + field.name] = value
        elif not isinstance(value, type):
            numbers |= _candidates(value, f"{prefix}{field.name}.")
    return numbers


def _serves(environment: Environment, number: dict[str, float], known: "_Played") -> bool:
    try:
        return _played(environment, number) == known
    except (
        Exception
    ):  # of JAX, of numpy or of the environment: in any case it needs to know the number
        return False


class _Played(NamedTuple):
    """What a program around an environment is built on."""

    structure: Any
    leaves: list[Any]
    facts: list[Any]
    calls_back: bool
    open_loops: int
    """Loops of a length that is not known beforehand: one that could be known is faster."""
    exact: bool
    """Whether whole numbers stay what Python would make of them."""


def _played(environment: Environment, numbers: dict[str, float]) -> _Played:
    """Trace a reset, two steps and a restart with these numbers unknown."""
    space, facts = environment.action_space, []
    action = jnp.zeros((), jnp.int32) if isinstance(space, Discrete) else jnp.zeros(space.size)

    def play(numbers: dict[str, Any], key: PRNGKeyArray) -> Any:
        changed = with_numbers(environment, numbers)
        # Each in a program of its own, as in a rollout: what the environment remembers must not be
        # part of one of them.
        state = jax.jit(lambda key: changed.reset(key))(key)
        for _ in range(2):
            state = jax.jit(lambda state, key: changed.step(state, action, key))(state, key)
        if isinstance(changed, PartialReset):
            state = jax.jit(lambda state, key: changed.restart(state, state.terminated, key))(
                state, key
            )
        lanes = getattr(changed, "most_lanes", None)
        facts.append(
            (changed.observation_size, changed.action_space, changed.normalise_observation, lanes)
        )
        return state

    program, state = jax.make_jaxpr(play, return_shape=True)(numbers, jax.random.key(0))
    leaves, structure = jax.tree.flatten(state)
    kinds = [(leaf.shape, leaf.dtype, leaf.weak_type) for leaf in leaves]
    exact, text = reckons_exactly(program, jax.tree.leaves(numbers)), str(program)
    return _Played(structure, kinds, facts, "callback[" in text, text.count("while["), exact)
