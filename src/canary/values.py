"""Types with ranges, for settings and for the arguments of public functions.

    epochs: Count                a whole number from 1
    hidden: tuple[Count, ...]    a list of such numbers; the text 64,64 spells one
    total_steps: Steps           12M and 600k are whole numbers too

`convert` turns a Python value or a text into a value of a type, or raises a `CanaryError`.
`checked` converts all arguments of a function before its body runs. No JAX here.
"""

import contextlib
import dataclasses
import functools
import inspect
import math
import os
import re
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal, ParamSpec, TypeVar

from canary.errors import CanaryError, nearest

LARGEST_INTEGER = 2**31 - 1  # device integers have 32 bits
MOST_SEEDS = 10_000
KNOWN = {"builtins", "collections", "pathlib", "canary"}  # the packages whose classes are checked

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


@dataclass(frozen=True)
class Range:
    """The allowed numbers: least <= x <= most or, if `open`, least < x <= most."""

    least: int | float = 0
    most: int | float = math.inf
    open: bool = False

    def __str__(self) -> str:
        """The range for people, without the largest 32-bit integer."""
        lower = f"{'>' if self.open else '>='} {self.least:g}"
        return lower if self.most >= LARGEST_INTEGER else f"{lower}, <= {self.most:.10g}"

    def complaint(self, number: int | float) -> str | None:
        """The rule that the number breaks, or None."""
        if number < self.least or (self.open and number == self.least):
            positive = self.open and self.least == 0
            return "must be positive" if positive else f"must be at least {self.least:g}"
        return f"must be at most {self.most:.10g}" if number > self.most else None


@dataclass(frozen=True)
class Reader:
    """Annotates a type with its reader: `read(value, where)` converts a value or raises."""

    read: Callable[[Any, str], Any]


def _texts(value: Any, where: str) -> tuple[str, ...]:
    return convert(tuple[str, ...], (value,) if isinstance(value, str) else value, where)


def _seeds(value: Any, where: str) -> int | tuple[int, ...]:
    """A number of seeds (4), or the seeds themselves: a list, or a text such as 3,5,7 or 0-9."""
    if isinstance(value, Iterable) and not isinstance(value, str):
        return convert(tuple[Whole, ...], value, where)
    with contextlib.suppress(CanaryError):
        return _number(int, value, where, Range(0, MOST_SEEDS))
    one = "[0-9]{1,9}(-[0-9]{1,9})?"
    if re.fullmatch(f"{one}(,{one})*,?", str(value)) and not str(value).isdecimal():
        seeds: list[int] = []
        for part in value.rstrip(",").split(","):
            first, _, last = part.partition("-")
            seeds.extend(range(int(first), int(last or first) + 1)[: MOST_SEEDS + 1])
        if 0 < len(seeds) <= MOST_SEEDS:
            return tuple(seeds)
    raise CanaryError(
        f"{where} must be a number of seeds up to {MOST_SEEDS}, or a list such as 3,5,7 or 0-9, not "
        f"{value!r:.60}."
    )


ANY_INTEGER, ANY_NUMBER = Range(-LARGEST_INTEGER, LARGEST_INTEGER), Range(-math.inf)
Whole = Annotated[int, Range(0, LARGEST_INTEGER)]
Count = Annotated[int, Range(1, LARGEST_INTEGER)]
Steps = Annotated[int, Range(1, 2**63 - 1)]
Amount = Annotated[float, Range(0)]
Positive = Annotated[float, Range(0, open=True)]
Share = Annotated[float, Range(0, 1)]
PositiveShare = Annotated[float, Range(0, 1, open=True)]
Layers = tuple[Annotated[int, Range(1, 2**16)], ...]
Kind = Literal["chance", "mean", "cvar"]
# What callers may pass. After conversion: an int, an int or a tuple, and a tuple.
AnySteps = Annotated[int | str, Reader(lambda value, where: convert(Steps, value, where))]
Seeds = Annotated[int | Sequence[int], Reader(_seeds)]
Texts = Annotated[str | Sequence[str], Reader(_texts)]


class Settings:
    """A base for settings that remembers which fields were passed by name. A preset chooses the
    others."""

    def __new__(cls, *_: Any, **named: Any) -> typing.Self:
        self = super().__new__(cls)
        object.__setattr__(self, "_named", frozenset(named))
        return self


def checked(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """The function, whose arguments are converted to their annotated types before its body runs."""
    signature = inspect.signature(function)

    @functools.wraps(function)
    def call(*positional: Parameters.args, **named: Parameters.kwargs) -> Result:
        given = signature.bind(*positional, **named)
        given.apply_defaults()
        given.arguments |= converted(function, given.arguments)
        return function(*given.args, **given.kwargs)

    return call


def converted(
    function: Callable[..., Any], arguments: Mapping[str, Any], prefix: str = ""
) -> dict[str, Any]:
    """Arguments of a function or class, converted to their annotated types."""
    hints = _hints(function)
    return {
        name: convert(hints.get(name, Any), value, f"{prefix}{name}")
        for name, value in arguments.items()
    }


@functools.lru_cache(maxsize=256)
def _hints(function: Any) -> dict[str, Any]:
    """The types of all parameters; empty if an annotation cannot be evaluated."""
    function = function.__init__ if inspect.isclass(function) else function
    with contextlib.suppress(Exception):
        return typing.get_type_hints(function, include_extras=True)
    return {}


def convert(hint: Any, value: Any, where: str) -> Any:
    """`value` as the type `hint`, or a `CanaryError` that says why it is none. Unknown types, such
    as protocols, accept everything."""
    origin, inside = typing.get_origin(hint), typing.get_args(hint)
    if origin is Annotated:
        reader, allowed = _note(hint, Reader), _note(hint, Range)
        if reader is not None:
            return reader.read(value, where)
        if allowed is not None:
            return _number(inside[0], value, where, allowed)
        return convert(inside[0], value, where)
    if origin in (typing.Union, types.UnionType):
        kinds = [kind for kind in inside if kind is not type(None)]
        if value is None and len(kinds) < len(inside):
            return None
        if len(kinds) == 1:  # whose message says more
            return convert(kinds[0], value, where)
        for kind in kinds:
            with contextlib.suppress(CanaryError):
                return convert(kind, value, where)
        raise _wrong(hint, value, where)
    if hint in (int, float):
        return _number(hint, value, where, ANY_INTEGER if hint is int else ANY_NUMBER)
    if origin is Sequence or (origin is tuple and inside[-1] is Ellipsis):
        is_text = isinstance(value, str) and "," in value
        items = value.strip("[] ").split(",") if is_text else value
        if isinstance(items, str | bytes | Mapping) or not isinstance(items, Iterable):
            raise _wrong(hint, value, where)
        return tuple(convert(inside[0], item, where) for item in items)
    if hint is Path and isinstance(value, str | os.PathLike):
        return Path(value)
    if dataclasses.is_dataclass(hint) and isinstance(value, Mapping):
        return from_dict(typing.cast(type, hint), value, where)
    if not _fits(hint, value):
        raise _wrong(hint, value, where)
    return value


def from_dict(kind: type[Result], data: Any, where: str) -> Result:
    """Settings from plain nested data; the inverse of `dataclasses.asdict`."""
    if not isinstance(data, Mapping):
        raise CanaryError(f"{where} must be a table of settings, not {data!r:.60}.")
    hints = type_hints(kind)
    for name in data:
        if name not in hints:
            raise CanaryError(f"{where} has no setting {name!r}{nearest(name, hints)}")
    try:
        return kind(**{name: convert(hints[name], data[name], f"{where}.{name}") for name in data})
    except TypeError as error:
        raise CanaryError(f"{where} is incomplete ({error}).") from None


def convert_fields(record: Any) -> None:
    """Convert the fields of a frozen dataclass to their types, in its `__post_init__`."""
    for name, hint in type_hints(type(record)).items():
        object.__setattr__(record, name, convert(hint, getattr(record, name), name))


def type_hints(kind: Any) -> dict[str, Any]:
    """The types of a dataclass's fields, with their ranges."""
    hints = typing.get_type_hints(kind, include_extras=True)
    return {field.name: hints[field.name] for field in dataclasses.fields(kind)}


def _fits(hint: Any, value: Any) -> bool:
    """Whether a value has a type; protocols and classes of other packages accept everything."""
    kind = typing.get_origin(hint) or hint
    if kind is Literal:
        return value in typing.get_args(hint)
    if kind is Callable:
        return callable(value)
    is_class = isinstance(kind, type) and not getattr(kind, "_is_protocol", False)
    is_known = is_class and kind.__module__.partition(".")[0] in KNOWN
    return isinstance(value, kind) if is_known else True


def _number(kind: Any, value: Any, where: str, allowed: Range) -> Any:
    number = value.tolist() if hasattr(value, "tolist") else value  # numpy's numbers
    number = _spelled(number) if isinstance(number, str) else number
    if isinstance(number, bool) or not isinstance(number, int | float):
        raise _wrong(kind, value, where)
    if kind is int and number % 1 != 0:  # also true of infinity
        raise _wrong(kind, value, where)
    if not abs(number) < (2**63 if kind is int else 1e308):  # also true of NaN
        size = "less than 2**63 in size" if kind is int else "a finite number"
        raise CanaryError(f"{where} must be {size}.")
    if complaint := allowed.complaint(number):
        raise CanaryError(f"{where} {complaint}, not {number}.")
    return kind(number)


def _spelled(text: str) -> int | float | None:
    """The number that a text spells: 1e6, 0.5, 12M or 600k."""
    match = re.fullmatch(
        r"\s*([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?)\s*([kKmM]?)\s*", text
    )
    if match is None or len(text) > 500:
        return None
    number = Decimal(match[1]) * {"": 1, "k": 10**3, "m": 10**6}[match[2].lower()]
    return int(number) if number == number.to_integral_value() else float(number)


def _wrong(hint: Any, value: Any, where: str) -> CanaryError:
    return CanaryError(f"{where} must be {words(hint)}, not {value!r:.60}.")


def words(hint: Any) -> str:
    """The values that a type allows, in words."""
    origin, inside = typing.get_origin(hint), typing.get_args(hint)
    if origin is Annotated:
        limits = _note(hint, Range)
        return words(inside[0]) if limits is None else f"{words(inside[0])} {limits}"
    if origin in (typing.Union, types.UnionType):
        return " or ".join(words(each) for each in inside)
    if origin is Literal:
        return f"one of {', '.join(map(str, inside))}"
    if origin in (tuple, Sequence):
        item = words(inside[0])
        if not re.match("a (whole number|number|text)", item) or " or " in item:
            return f"a list, each item {item}"
        return f"a list of {item[2:].replace('number', 'numbers').replace('text', 'texts')}"
    names = {
        bool: "true or false", int: "a whole number", float: "a number", str: "a text",
        type(None): "none", Path: "a path", Mapping: "a table", dict: "a table",
        Callable: "a function",
    }  # fmt: skip
    return names.get(origin or hint, f"a {getattr(hint, '__name__', hint)}")


def _note(hint: Any, kind: type[Result]) -> Result | None:
    notes = getattr(hint, "__metadata__", ())
    return next((note for note in notes if isinstance(note, kind)), None)
