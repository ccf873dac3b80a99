"""Frozen dataclasses as settings: to and from plain dictionaries, changed by path, and checked.

The types of the fields say everything: what a value must be, and in which range
(`canary.types.Range`).
"""

import contextlib
import dataclasses
import json
import math
import types
import typing
from typing import Annotated, Any, TypeVar

from canary.errors import CanaryError, nearest
from canary.types import LARGEST_INTEGER, Range

Kind = TypeVar("Kind")
# Any: a dataclass; the type checker has no name for "any dataclass" that generic code could use.
Settings = Any


def to_dict(settings: Any) -> dict[str, Any]:
    """Nested plain data that JSON can hold; tuples become lists."""
    return json.loads(json.dumps(dataclasses.asdict(settings)))


def from_dict(kind: type[Kind], data: Any, where: str) -> Kind:
    """The inverse of `to_dict`; `where` names the place in error sentences."""
    if not isinstance(data, dict):
        raise CanaryError(f"{where} must be a table of settings, not {data!r}.")
    hints = type_hints(kind)
    for name in data:
        if name not in hints:
            raise CanaryError(f"{where} has no setting {name!r}{nearest(name, hints)}")
    for field in dataclasses.fields(typing.cast(Any, kind)):
        # Both are MISSING if there is none
        has_default = field.default is not field.default_factory
        if field.name not in data and not has_default:
            raise CanaryError(f"{where} lacks the setting {field.name!r}.")
    return kind(
        **{name: convert(hints[name], value, f"{where}.{name}") for name, value in data.items()}
    )


def type_hints(kind: Any) -> dict[str, Any]:
    """The types of a dataclass's fields, with their ranges."""
    hints = typing.get_type_hints(kind, include_extras=True)
    return {field.name: hints[field.name] for field in dataclasses.fields(kind)}


def convert(hint: Any, value: Any, where: str) -> Any:
    """`value` as an instance of the annotated type, or a sentence about why it is not one."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is Annotated:
        return convert(arguments[0], value, where)
    if dataclasses.is_dataclass(hint):
        return from_dict(typing.cast(type, hint), value, where)
    if origin in (typing.Union, types.UnionType):
        if value is None and type(None) in arguments:
            return None
        return _convert_alternative(
            [each for each in arguments if each is not type(None)], value, where
        )
    if origin is typing.Literal:
        if value not in arguments:
            raise CanaryError(
                f"{where} must be one of {', '.join(map(str, arguments))}, not {value!r}."
            )
        return value
    if origin is tuple:
        if isinstance(value, str) and "," in value:  # 64,64 is a way to write [64, 64]
            value = [parse(item.strip(), arguments[0]) for item in value.strip("[] ").split(",")]
        if not isinstance(value, list | tuple):
            raise CanaryError(f"{where} must be a list such as [64] or 64,64, not {value!r}.")
        return tuple(convert(arguments[0], item, where) for item in value)
    return _convert_scalar(hint, value, where)


def _convert_alternative(kinds: list[Any], value: Any, where: str) -> Any:
    """The first of several kinds that the value is one of; the sentence is that of the last."""
    for kind in kinds[:-1]:
        with contextlib.suppress(CanaryError):
            return convert(kind, value, where)
    return convert(kinds[-1], value, where)


def _convert_scalar(hint: Any, value: Any, where: str) -> Any:
    if hint is bool and isinstance(value, bool):
        return value
    if isinstance(value, int) and abs(value) >= 2**63:
        raise CanaryError(
            f"{where} must be less than 2**63 in size; it has {len(str(abs(value)))} digits."
        )
    if hint is int and not isinstance(value, bool) and (isinstance(value, int) or _is_whole(value)):
        return int(value)
    if hint is float and isinstance(value, int | float) and not isinstance(value, bool):
        if not math.isfinite(value):
            raise CanaryError(f"{where} must be a finite number, not {value!r}.")
        return float(value)
    if hint is str and isinstance(value, str):
        return value
    kinds = {bool: "true or false", int: "a whole number", float: "a number", str: "a text"}
    raise CanaryError(f"{where} must be {kinds.get(hint, hint)}, not {value!r}.")


def _is_whole(value: Any) -> bool:
    """1e6 is a way to write a whole number; infinity is none."""
    return isinstance(value, float) and value.is_integer()


def override(settings: Settings, path: str, value: Any, where: str) -> Settings:
    """`settings` with the setting at `path` replaced by a value, or by the value that a text
    spells.

    The path may leave out levels where its last name is unique: `target_kl` for
    `trust_region.target_kl`.
    """
    head, _, rest = path.partition(".")
    if head not in {field.name for field in dataclasses.fields(settings)}:
        head, rest = _find_level(settings, head, rest, where)
    current = getattr(settings, head)
    if rest:
        if not dataclasses.is_dataclass(current):
            raise CanaryError(f"{where}.{head} is a single value; {rest!r} cannot be set in it.")
        value = override(current, rest, value, f"{where}.{head}")
    elif dataclasses.is_dataclass(current):
        inside = ", ".join(field.name for field in dataclasses.fields(current))
        raise CanaryError(f"{where}.{head} is a group of settings; set one of {inside} in it.")
    else:
        hint = type_hints(type(settings))[head]
        value = convert(hint, parse(value, hint), f"{where}.{head}")
    return dataclasses.replace(settings, **{head: value})


def _find_level(settings: Any, head: str, rest: str, where: str) -> tuple[str, str]:
    """The group that holds a setting named `head`, and the path of that setting inside the
    group."""
    groups = {f.name: getattr(settings, f.name) for f in dataclasses.fields(settings)}
    groups = {name: group for name, group in groups.items() if dataclasses.is_dataclass(group)}
    holders = [name for name, group in groups.items() if hasattr(group, head)]
    if len(holders) == 1:
        return holders[0], f"{head}.{rest}" if rest else head
    if holders:
        choices = " or ".join(f"{where}.{name}.{head}" for name in holders)
        raise CanaryError(f"{where}.{head} could mean {choices}; say which.")
    known = {f.name for f in dataclasses.fields(settings)}
    known |= {f.name for group in groups.values() for f in dataclasses.fields(group)}
    raise CanaryError(f"{where} has no setting {head!r}{nearest(head, known)}")


def parse(value: Any, hint: Any) -> Any:
    """A text as the value that it spells: JSON where it is JSON. Other values as they are, numpy's
    as Python's."""
    if not isinstance(value, str):
        return value.tolist() if hasattr(value, "tolist") else value
    if hint is str:
        return value
    try:
        return json.loads(value.lower() if value.lower() in ("true", "false", "none") else value)
    except (
        ValueError,
        RecursionError,
    ):  # no JSON, a number of thousands of digits, brackets without end
        return None if value.lower() == "none" else value


def check_ranges(settings: Any, where: str) -> None:
    """Raise a sentence if a number of nested settings is out of its range; whole numbers have 32
    bits."""
    hints = type_hints(type(settings)) if dataclasses.is_dataclass(settings) else {}
    for name, hint in hints.items():
        value, place = getattr(settings, name), f"{where}.{name}"
        check_ranges(value, place)
        for number in value if isinstance(value, tuple) else (value,):
            if isinstance(number, int | float) and not isinstance(number, bool):
                allowed = range_of(hint) or Range(
                    -math.inf, LARGEST_INTEGER if isinstance(number, int) else math.inf
                )
                complaint = allowed.complaint(number)
                if complaint:
                    raise CanaryError(f"{place} {complaint}, not {number}.")


def range_of(hint: Any) -> Range | None:
    """The range in a type: its own, or that of one of its parts."""
    if typing.get_origin(hint) is Annotated:
        return next((each for each in hint.__metadata__ if isinstance(each, Range)), None)
    return next(filter(None, (range_of(each) for each in typing.get_args(hint))), None)
