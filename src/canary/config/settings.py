"""Settings are frozen dataclasses: as plain data, changed by path, and as a table for people."""

import dataclasses
import json
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from docstring_parser import parse_from_object

from canary.errors import CanaryError, nearest
from canary.values import convert, type_hints, words

# Any dataclass; the type checker has no name for that.
Settings = Any


class Setting(NamedTuple):
    """One value of nested settings."""

    path: str
    """The names that lead to it, such as `trust_region.target_kl`."""
    hint: Any
    value: Any
    owner: type
    """The class that has it as a field."""


def leaves(settings: Settings, group: str = "", *, named: bool = False) -> Iterator[Setting]:
    """All values of nested settings. With `named`, only the fields that were named when the settings
    were made; classes that do not remember this give all."""
    names = getattr(settings, "_named", None) if named else None
    for name, hint in type_hints(type(settings)).items():
        value = getattr(settings, name)
        if names is not None and name not in names:
            continue
        if dataclasses.is_dataclass(value):
            yield from leaves(value, f"{group}{name}.", named=named)
        else:
            yield Setting(f"{group}{name}", hint, value, type(settings))


def to_dict(settings: Settings) -> dict[str, Any]:
    """Nested plain data that JSON can hold; tuples become lists."""
    return json.loads(json.dumps(dataclasses.asdict(settings)))


def check(settings: Settings, where: str) -> None:
    """A sentence if a value is not what its type says."""
    for each in leaves(settings):
        convert(each.hint, each.value, f"{where}.{each.path}")


def override(settings: Settings, changes: Mapping[str, Any], where: str) -> Settings:
    """`settings` with some replaced, each by a value or by what a text spells.

    A path may leave out levels where its last name is unique: `target_kl` for
    `trust_region.target_kl`.
    """
    known = {each.path: each for each in leaves(settings)}
    values = {}
    for path, value in changes.items():
        found = [path] if path in known else [each for each in known if each.endswith(f".{path}")]
        if not found:
            names = {each.rpartition(".")[2] for each in known}
            near = nearest(path.rpartition(".")[2], names)
            raise CanaryError(f"{where} has no setting {path!r:.60}{near}")
        if len(found) > 1:
            choices = " or ".join(f"{where}.{each}" for each in found)
            raise CanaryError(f"{where}.{path} could mean {choices}; name one of them.")
        hint = known[found[0]].hint
        spelled = value if hint is str else parse(value)
        values[found[0]] = convert(hint, spelled, f"{where}.{found[0]}")
    return _replaced(settings, values)


def _replaced(settings: Settings, values: Mapping[str, Any]) -> Settings:
    """Replace together, because a class may check its values together."""
    own = {path: value for path, value in values.items() if "." not in path}
    for group in {path.partition(".")[0] for path in values} - own.keys():
        inside = {path: value for path, value in values.items() if path.startswith(f"{group}.")}
        inside = {path.partition(".")[2]: value for path, value in inside.items()}
        own[group] = _replaced(getattr(settings, group), inside)
    return dataclasses.replace(settings, **own)


def parse(value: Any) -> Any:
    """A text as the value that it spells: JSON where it is JSON. Other values as they are, numpy's
    as Python's."""
    if not isinstance(value, str):
        return value.tolist() if hasattr(value, "tolist") else value
    plain = {"true": "true", "false": "false", "none": "null"}.get(value.lower(), value)
    try:
        return json.loads(plain)
    except ValueError:
        return value


def table(settings: Settings, section: str) -> list[dict[str, str]]:
    """Rows `setting`, `default`, `range`, `about` of everything that `--set` can change."""
    found = list(leaves(settings))
    names = [each.path.rpartition(".")[2] for each in found]
    return [
        {
            # The group can be left out where the name is unique
            "setting": f"{section}.{name if names.count(name) == 1 else each.path}",
            "default": written(each.value),
            "range": words(each.hint).removeprefix("a "),
            "about": _about(each.owner, name),
        }
        for each, name in zip(found, names, strict=True)
    ]


def _about(owner: type, name: str) -> str:
    """The first sentence of the text below a field."""
    for base in owner.__mro__[:-1]:
        for each in parse_from_object(base).params:
            if each.arg_name == name:
                text = " ".join((each.description or "").split())
                return text.partition(". ")[0].rstrip(".")
    return ""


def written(value: Any) -> str:
    """A value as `--set` reads it."""
    if isinstance(value, tuple):
        return ",".join(map(written, value))
    if value is None or isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)
