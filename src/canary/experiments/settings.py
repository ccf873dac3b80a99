"""Frozen dataclasses as settings: to and from plain dictionaries, and `path=value` overrides, with strict checks."""

import dataclasses
import difflib
import json
import math
import types
import typing
from typing import Any, TypeVar

from canary.errors import CanaryError

Kind = TypeVar("Kind")
# Any: a dataclass; the type checker has no name for "any dataclass" that generic code could use.
Settings = Any


def nearest(name: str, known: typing.Iterable[str]) -> str:
    """`; did you mean X?` or, if nothing is near, the whole list: the tail of a sentence about an unknown name."""
    known = sorted(known)
    matches = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
    if matches:
        return f"; did you mean {' or '.join(matches)}?"
    return f"; known are {', '.join(known)}." if known else "."


def to_dict(settings: Any) -> dict[str, Any]:
    """Nested plain data that JSON can hold; tuples become lists."""
    return json.loads(json.dumps(dataclasses.asdict(settings)))


def from_dict(kind: type[Kind], data: Any, where: str) -> Kind:
    """The inverse of `to_dict`; `where` names the place in error sentences."""
    if not isinstance(data, dict):
        raise CanaryError(f"{where} must be a table of settings, not {data!r}.")
    hints = typing.get_type_hints(kind)
    names = {field.name for field in dataclasses.fields(typing.cast(Any, kind))}
    for name in data:
        if name not in names:
            raise CanaryError(f"{where} has no setting {name!r}{nearest(name, names)}")
    for field in dataclasses.fields(typing.cast(Any, kind)):
        has_default = field.default is not field.default_factory  # both are MISSING if there is none
        if field.name not in data and not has_default:
            raise CanaryError(f"{where} lacks the setting {field.name!r}.")
    return kind(**{name: convert(hints[name], value, f"{where}.{name}") for name, value in data.items()})


def convert(hint: Any, value: Any, where: str) -> Any:
    """`value` as an instance of the annotated type, or a sentence about why it is not one."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if dataclasses.is_dataclass(hint):
        return from_dict(typing.cast(type, hint), value, where)
    if origin in (typing.Union, types.UnionType):
        if value is None and type(None) in arguments:
            return None
        (inner,) = [argument for argument in arguments if argument is not type(None)]
        return convert(inner, value, where)
    if origin is typing.Literal:
        if value not in arguments:
            raise CanaryError(f"{where} must be one of {', '.join(map(str, arguments))}, not {value!r}.")
        return value
    if origin is tuple:
        if not isinstance(value, list | tuple):
            raise CanaryError(f"{where} must be a list, not {value!r}.")
        return tuple(convert(arguments[0], item, where) for item in value)
    return _convert_scalar(hint, value, where)


def _convert_scalar(hint: Any, value: Any, where: str) -> Any:
    if hint is bool and isinstance(value, bool):
        return value
    if isinstance(value, int) and abs(value) >= 2**63:
        raise CanaryError(f"{where} must be less than 2**63 in size; it has {len(str(abs(value)))} digits.")
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
    return (
        isinstance(value, float) and value.is_integer()
    )  # 1e6 is a way to write a whole number; infinity is none


def override(settings: Settings, path: str, text: str, where: str) -> Settings:
    """`settings` with the setting at `path` replaced by the value that `text` spells.

    The path may leave out levels where its last name is unique: `target_kl` for `trust_region.target_kl`.
    """
    head, _, rest = path.partition(".")
    names = {field.name: field for field in dataclasses.fields(settings)}
    if head not in names:
        head, rest = _find_level(settings, head, rest, where)
    current = getattr(settings, head)
    if rest:
        if not dataclasses.is_dataclass(current):
            raise CanaryError(f"{where}.{head} is a single value; {rest!r} cannot be set in it.")
        value = override(current, rest, text, f"{where}.{head}")
    elif dataclasses.is_dataclass(current):
        inside = ", ".join(field.name for field in dataclasses.fields(current))
        raise CanaryError(f"{where}.{head} is a group of settings; set one of {inside} in it.")
    else:
        hint = typing.get_type_hints(type(settings))[head]
        value = convert(hint, parse(text, hint), f"{where}.{head}")
    return dataclasses.replace(settings, **{head: value})


def _find_level(settings: Any, head: str, rest: str, where: str) -> tuple[str, str]:
    """The group that holds a setting named `head`, and the path of that setting inside the group."""
    groups = {f.name: getattr(settings, f.name) for f in dataclasses.fields(settings)}
    groups = {name: group for name, group in groups.items() if dataclasses.is_dataclass(group)}
    holders = [name for name, group in groups.items() if hasattr(group, head)]
    if len(holders) == 1:
        return holders[0], f"{head}.{rest}" if rest else head
    known = {f.name for f in dataclasses.fields(settings)}
    known |= {f.name for group in groups.values() for f in dataclasses.fields(group)}
    raise CanaryError(f"{where} has no setting {head!r}{nearest(head, known)}")


def parse(text: str, hint: Any) -> Any:
    """A value from the command line: JSON where it is JSON, else the text itself."""
    if hint is str:
        return text
    try:
        return json.loads(text.lower() if text.lower() in ("true", "false", "none") else text)
    except json.JSONDecodeError:
        return None if text.lower() == "none" else text
