"""Every setting of an algorithm, an environment or the training, as rows for people: what it is,
and what it can be."""

import dataclasses
from typing import Any

from docstring_parser import parse_from_object

from canary.algorithms import ALGORITHMS
from canary.config.config import canonical
from canary.config.run_config import TrainingConfig
from canary.environments import ENVIRONMENTS
from canary.values import type_hints, words

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
    for row, leaf in zip(rows, leaves, strict=True):
        # The group can be left out where the name is unique.
        row["setting"] = f"{section}.{leaf if leaves.count(leaf) == 1 else row['setting']}"
    return rows


def _rows(settings: Any, group: str = "") -> list[Row]:
    about = {
        each.arg_name: " ".join((each.description or "").split()).partition(". ")[0].rstrip(".")
        for base in reversed(type(settings).__mro__[:-1])
        for each in parse_from_object(base).params
    }
    rows = []
    for name, hint in type_hints(type(settings)).items():
        value, place = getattr(settings, name), f"{group}{name}"
        if dataclasses.is_dataclass(value):
            rows += _rows(value, f"{place}.")
        else:
            limits = words(hint).removeprefix("a ")
            default, text = written(value), about.get(name, "")
            rows.append({"setting": place, "default": default, "range": limits, "about": text})
    return rows


def written(value: Any) -> str:
    """A value as `--set` reads it."""
    if isinstance(value, tuple):
        return ",".join(map(written, value))
    if value is None or isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)
