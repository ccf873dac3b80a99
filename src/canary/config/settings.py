"""Settings are frozen dataclasses: as plain data, changed by path, and what was said in one."""

import dataclasses
import json
from collections.abc import Iterator, Mapping
from typing import Any

from canary.errors import CanaryError, nearest
from canary.values import convert, type_hints

# Any: a dataclass; the type checker has no name for "any dataclass" that generic code could use.
Settings = Any


def to_dict(settings: Settings) -> dict[str, Any]:
    """Nested plain data that JSON can hold; tuples become lists."""
    return json.loads(json.dumps(dataclasses.asdict(settings)))


def said(settings: Settings, place: str) -> Iterator[tuple[str, Any]]:
    """Paths and values of the fields that were named when settings were made; all of them where
    nothing is known about that."""
    named = getattr(settings, "_named", None)
    for field in dataclasses.fields(settings):
        if named is None or field.name in named:
            value, path = getattr(settings, field.name), f"{place}.{field.name}"
            yield from said(value, path) if dataclasses.is_dataclass(value) else [(path, value)]


def override(settings: Settings, changes: Mapping[str, Any], where: str) -> Settings:
    """`settings` with some replaced, by path: each by a value, or by what a text spells.

    A path may leave out levels where its last name is unique: `target_kl` for
    `trust_region.target_kl`.
    """
    hints, values, groups = type_hints(type(settings)), {}, {}
    for path, value in changes.items():
        head, _, rest = path.partition(".")
        if head not in hints:
            head, rest = _find_level(settings, head, rest, where)
        place, is_group = f"{where}.{head}", dataclasses.is_dataclass(getattr(settings, head))
        if rest and not is_group:
            raise CanaryError(f"{place} is a single value; {rest!r} cannot be set in it.")
        if is_group and not rest:
            inside = ", ".join(type_hints(type(getattr(settings, head))))
            raise CanaryError(f"{place} is a group of settings; set one of {inside} in it.")
        if is_group:
            groups.setdefault(head, {})[rest] = value
        else:
            spelled = value if hints[head] is str else parse(value)
            values[head] = convert(hints[head], spelled, place)
    for head, inside in groups.items():
        values[head] = override(getattr(settings, head), inside, f"{where}.{head}")
    return dataclasses.replace(settings, **values)


def _find_level(settings: Settings, head: str, rest: str, where: str) -> tuple[str, str]:
    """The group that holds a setting named `head`, and the path of that setting inside the
    group."""
    groups = {f.name: getattr(settings, f.name) for f in dataclasses.fields(settings)}
    groups = {name: group for name, group in groups.items() if dataclasses.is_dataclass(group)}
    holders = [name for name, group in groups.items() if head in type_hints(type(group))]
    if len(holders) == 1:
        return holders[0], f"{head}.{rest}" if rest else head
    if holders:
        choices = " or ".join(f"{where}.{name}.{head}" for name in holders)
        raise CanaryError(f"{where}.{head} could mean {choices}; say which.")
    known = {*type_hints(type(settings))}.union(*(type_hints(type(g)) for g in groups.values()))
    raise CanaryError(f"{where} has no setting {head!r}{nearest(head, known)}")


def parse(value: Any) -> Any:
    """A text as the value that it spells: JSON where it is JSON. Other values as they are, numpy's
    as Python's."""
    if not isinstance(value, str):
        return value.tolist() if hasattr(value, "tolist") else value
    plain = {"true": "true", "false": "false", "none": "null"}.get(value.lower(), value)
    try:
        return json.loads(plain)
    except (ValueError, RecursionError):  # thousands of digits, or of brackets
        return value


def check(settings: Any, where: str) -> None:
    """A sentence if a value of nested settings is not what its type says."""
    for name, hint in type_hints(type(settings)).items():
        value, place = getattr(settings, name), f"{where}.{name}"
        if dataclasses.is_dataclass(value):
            check(value, place)
        else:
            convert(hint, value, place)
