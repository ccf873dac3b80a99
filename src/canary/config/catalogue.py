"""Every setting of an algorithm, an environment or the training, as rows for people: what it is,
and what it can be."""

import ast
import dataclasses
import inspect
import textwrap
import types
import typing
from typing import Annotated, Any

from canary.algorithms import ALGORITHMS
from canary.config.config import canonical
from canary.config.overrides import range_of, type_hints
from canary.config.run_config import TrainingConfig
from canary.environments import ENVIRONMENTS

Row = dict[str, str]


def settings_of(name: str) -> list[Row]:
    """Rows `setting`, `default`, `range`, `about` of all that `--set` can change in what has this
    name."""
    name = canonical(name, [*ALGORITHMS, *ENVIRONMENTS, "training"], "algorithm or environment")
    if name in ALGORITHMS:
        section, rows = "algo", _rows(ALGORITHMS[name]())
    elif name == "training":
        section, rows = "training", _rows(TrainingConfig())
    else:
        section, rows = "env", _rows(ENVIRONMENTS[name]())
    leaves = [row["setting"].rpartition(".")[2] for row in rows]
    for row, leaf in zip(
        rows, leaves, strict=True
    ):  # the group can be left out where the name is unique
        row["setting"] = f"{section}.{leaf if leaves.count(leaf) == 1 else row['setting']}"
    return rows


def _rows(settings: Any, group: str = "") -> list[Row]:
    texts, rows = _texts(type(settings)), []
    for name, hint in type_hints(type(settings)).items():
        value, place = getattr(settings, name), f"{group}{name}"
        if dataclasses.is_dataclass(value):
            rows += _rows(value, f"{place}.")
        else:
            about = texts.get(name, "")
            rows.append(
                {"setting": place, "default": written(value), "range": _range(hint), "about": about}
            )
    return rows


def written(value: Any) -> str:
    """A value as `--set` reads it."""
    if isinstance(value, tuple):
        return ",".join(map(written, value))
    if value is None or isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)


def _range(hint: Any) -> str:
    """What a type allows, in words."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is Annotated:
        limits = range_of(hint)
        kind = "whole" if arguments[0] is int else ""
        return _range(arguments[0]) if limits is None else f"{kind} {limits}".strip()
    if origin in (typing.Union, types.UnionType):
        return " or ".join(_range(each) for each in arguments)
    if origin is typing.Literal:
        return ", ".join(map(str, arguments))
    if origin is tuple:
        return f"list of {_range(arguments[0])}"
    words = {bool: "true, false", int: "whole", float: "number", str: "text", type(None): "none"}
    return words.get(hint, str(hint))


def _texts(kind: type) -> dict[str, str]:
    """The texts below the fields of a dataclass and of those it is derived from; the first sentence
    of each."""
    texts: dict[str, str] = {}
    for base in reversed(kind.__mro__[:-1]):
        (body,) = ast.parse(textwrap.dedent(inspect.getsource(base))).body
        assert isinstance(body, ast.ClassDef)
        for field, below in zip(body.body, body.body[1:], strict=False):
            match field, below:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(
                    value=ast.Constant(value=str(text))
                ):
                    texts[name] = " ".join(text.split()).partition(". ")[0].rstrip(".")
    return texts
