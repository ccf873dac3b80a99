"""Settings are frozen dataclasses: found by name, changed by path, shown as a table."""

import ast
import dataclasses
import inspect
import json
import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from typing import Any, NamedTuple

from canary.errors import CanaryError, nearest
from canary.values import convert, type_hints, words

# Any dataclass; the type checker has no name for that.
Settings = Any


def canonical(name: str, known: Iterable[str], what: str) -> str:
    """The known name that equals `name`, ignoring case, `-` and `_`."""

    def fold(text: str) -> str:
        return re.sub("[-_]", "", text.lower())

    for each in known:
        if fold(each) == fold(name):
            return each
    raise CanaryError(f"There is no {what} called {name!r:.60}{nearest(name, known)}")


class Setting(NamedTuple):
    """One value of nested settings."""

    path: str
    """The names of its groups and its own name, such as `trust_region.target_kl`."""
    hint: Any
    value: Any
    owner: type
    """The class of which it is a field."""

    @property
    def name(self) -> str:
        return self.path.rpartition(".")[2]


def leaves(settings: Settings, group: str = "", *, named: bool = False) -> Iterator[Setting]:
    """All values of nested settings. With `named`, only those that were passed by name, if the
    class remembers them; else all."""
    names = getattr(settings, "_named", None) if named else None
    for name, hint in type_hints(type(settings)).items():
        value = getattr(settings, name)
        if names is not None and name not in names:
            continue
        if dataclasses.is_dataclass(value):
            yield from leaves(value, f"{group}{name}.", named=named)
        else:
            yield Setting(f"{group}{name}", hint, value, type(settings))


def check(settings: Settings, where: str) -> None:
    """Raise if a value does not fit its type."""
    for each in leaves(settings):
        convert(each.hint, each.value, f"{where}.{each.path}")


def changed(settings: Settings, changes: Mapping[str, Any], where: str) -> Settings:
    """`settings` with some values replaced; texts are parsed.

    A path may leave out groups if its last name is unique: `target_kl` for `trust_region.target_kl`.
    """
    known = list(leaves(settings))
    values = {}
    for path, value in changes.items():
        found = [each for each in known if f".{each.path}".endswith(f".{path}")]
        found = [each for each in found if each.path == path] or found
        if not found:
            near = nearest(path.rpartition(".")[2], {each.name for each in known})
            raise CanaryError(f"{where} has no setting {path!r:.60}{near}")
        if len(found) > 1:
            choices = " or ".join(f"{where}.{each.path}" for each in found)
            raise CanaryError(f"{where}.{path} could mean {choices}; name one of them.")
        (setting,) = found
        spelled = value if setting.hint is str else parse(value)
        values[setting.path] = convert(setting.hint, spelled, f"{where}.{setting.path}")
    return _replaced(settings, values)


def _replaced(settings: Settings, values: Mapping[str, Any]) -> Settings:
    """Replace all at once, because a class may check its values together."""
    groups: dict[str, dict[str, Any]] = {}
    for path, value in values.items():
        name, _, rest = path.partition(".")
        groups.setdefault(name, {})[rest] = value
    own = {
        name: inside[""] if "" in inside else _replaced(getattr(settings, name), inside)
        for name, inside in groups.items()
    }
    return dataclasses.replace(settings, **own)


def parse(value: Any) -> Any:
    """The value that a text spells, if it is JSON, else the text. numpy's numbers become Python's;
    other values do not change."""
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
    names = [each.name for each in found]
    return [
        {
            # The group is optional if the name is unique
            "setting": f"{section}.{each.path if names.count(each.name) > 1 else each.name}",
            "default": written(each.value),
            "range": words(each.hint).removeprefix("a "),
            "about": texts_of(each.owner)[each.name].partition(". ")[0].rstrip("."),
        }
        for each in found
    ]


def texts_of(kind: type) -> dict[str, str]:
    """The text below each field of a class."""
    texts = {}
    for base in reversed(kind.__mro__[:-1]):
        tree: Any = ast.parse(textwrap.dedent(inspect.getsource(base)))
        for field, below in pairwise(tree.body[0].body):
            match field, below:
                case ast.AnnAssign(target=ast.Name(name)), ast.Expr(ast.Constant(str(text))):
                    texts[name] = " ".join(text.split())
    return texts


def written(value: Any) -> str:
    """A value as `--set` reads it."""
    if isinstance(value, tuple):
        return ",".join(map(written, value))
    if value is None or isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)
