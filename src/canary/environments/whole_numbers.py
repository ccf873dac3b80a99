"""Would a program reckon with the whole-number settings of an environment as Python does?

Python's whole numbers have no end, those of a program have 32 bits: `self.rows * self.columns`
could silently become another number when both are arguments of the program. So everything that a
traced program computes from such settings alone is computed here once more, in Python, and must
fit. What it computes from settings and other arrays has 32 bits in any case.
"""

import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from jax.extend.core import ClosedJaxpr, Jaxpr, Literal

LARGEST = 2**31 - 1
WHOLE = "biu"  # kinds of numbers that are followed: Booleans, whole numbers with and without a sign


class Number(NamedTuple):
    """The value of a variable that is known before the program runs."""

    value: int | bool
    of_setting: bool
    """Whether a setting is in it, rather than constants alone."""


Known = Number | None
"""None: it is known only when the program runs."""


def _quotient(one: int, other: int) -> int:
    """Rounded towards zero, as XLA divides."""
    quotient = abs(one) // abs(other)
    return quotient if (one < 0) == (other < 0) else -quotient


def _power(base: int, exponent: int) -> int:
    if exponent < 0:  # a fraction in Python, none in a program
        raise OverflowError
    return base**exponent


_EXACTLY: dict[str, Callable[..., int | bool]] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "neg": operator.neg,
    "abs": abs, "max": max, "min": min, "sign": lambda x: (x > 0) - (x < 0),
    "div": _quotient, "rem": lambda one, other: one - other * _quotient(one, other),
    "pow": _power, "square": lambda x: x * x,
    "shift_left": operator.lshift, "shift_right_arithmetic": operator.rshift,
    "eq": operator.eq, "ne": operator.ne, "lt": operator.lt, "le": operator.le,
    "gt": operator.gt, "ge": operator.ge,
    "and": operator.and_, "or": operator.or_, "xor": operator.xor,
    "select_n": lambda which, *cases: cases[which],
    "convert_element_type": lambda x: x, "copy": lambda x: x,
}  # fmt: skip


def reckons_exactly(program: ClosedJaxpr, settings: Sequence[Any]) -> bool:
    """Whether whatever the program computes from its first arguments alone, if they are these
    settings, fits into its whole numbers."""
    known = [_whole(setting, of_setting=True) for setting in settings]
    try:
        _follow(program.jaxpr, [*known, *[None] * (len(program.jaxpr.invars) - len(known))])
    except (OverflowError, ZeroDivisionError):
        return False
    return True


def _whole(value: Any, of_setting: bool) -> Known:
    return Number(value, of_setting) if isinstance(value, int) else None


def _follow(jaxpr: Jaxpr, inputs: Sequence[Known]) -> list[Known]:
    """The known results of a program whose inputs are known or not. Raises OverflowError where one
    would not fit."""
    values: dict[Any, Known] = dict(zip(jaxpr.invars, inputs, strict=True))

    def read(atom: Any) -> Known:
        if isinstance(atom, Literal):
            return _whole(getattr(atom.val, "item", lambda: atom.val)(), of_setting=False)
        return values.get(atom)

    for equation in jaxpr.eqns:
        given = [read(atom) for atom in equation.invars]
        values |= zip(equation.outvars, _results(equation, given), strict=True)
    return [read(atom) for atom in jaxpr.outvars]


def _results(equation: Any, given: list[Known]) -> list[Known]:
    unknown: list[Known] = [None] * len(equation.outvars)
    numbers = [number for number in given if number is not None]
    of_setting = any(number.of_setting for number in numbers)
    parts = list(_parts(equation, given)) if of_setting else []
    if parts:
        found = [_follow(jaxpr, inputs) for jaxpr, inputs in parts]
        return found[0] if equation.primitive.name in ("jit", "pjit") else unknown
    result = equation.outvars[0].aval if equation.outvars else None
    if result is None or result.shape or getattr(result.dtype, "kind", "") not in WHOLE:
        return unknown
    if not numbers or len(numbers) < len(given):
        return unknown
    try:
        return [Number(_computed(equation, [number.value for number in numbers]), of_setting)]
    except (OverflowError, ZeroDivisionError):
        if of_setting:
            raise
        return unknown


def _computed(equation: Any, given: list[Any]) -> int | bool:
    name = equation.primitive.name
    if name == "integer_pow":
        name, given = "pow", [*given, equation.params["y"]]
    if name not in _EXACTLY or (name in ("pow", "shift_left") and not 0 <= given[1] < 64):
        raise OverflowError(f"{name} is not followed")
    result = _EXACTLY[name](*given)
    if not -LARGEST <= result <= LARGEST:
        raise OverflowError
    return result


def _parts(equation: Any, given: list[Known]) -> Iterator[tuple[Jaxpr, list[Known]]]:
    """The programs inside an equation, with what is known of their inputs."""
    name, params = equation.primitive.name, equation.params
    if name == "cond":
        for branch in params["branches"]:
            yield branch.jaxpr, given[1:]
    elif name == "scan":
        jaxpr, constant = params["jaxpr"].jaxpr, params["num_consts"]
        yield jaxpr, given[:constant] + [None] * (len(jaxpr.invars) - constant)
    elif name == "while":
        first, second = params["cond_nconsts"], params["body_nconsts"]
        for key, constants in (
            ("cond_jaxpr", given[:first]),
            ("body_jaxpr", given[first : first + second]),
        ):
            jaxpr = params[key].jaxpr
            yield jaxpr, constants + [None] * (len(jaxpr.invars) - len(constants))
    else:
        for part in params.values():
            jaxpr = part.jaxpr if isinstance(part, ClosedJaxpr) else part
            if isinstance(jaxpr, Jaxpr):
                if len(jaxpr.invars) != len(given):
                    raise OverflowError(f"{name} is not followed")
                yield jaxpr, given
