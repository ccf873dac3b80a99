"""In which settings runs differ, from their stored configurations alone. No JAX here."""

from collections.abc import Iterator, Sequence
from typing import Any

PARTS = {"environment": "env", "algorithm": "algo"}
APART = {"training.seeds"}  # shown in a column of its own, and rarely what a comparison is about
Settings = dict[str, Any]


def differing(configs: Sequence[dict[str, Any] | None]) -> list[Settings]:
    """For each run its settings that are not the same everywhere, by the names of `--set`:
    {"algo.target_kl": 0.02}.

    Names and constraints are compared among all runs; settings of an environment, of an algorithm
    and of training only among runs with the same environment, algorithm and preset, for those
    explain the rest.
    """
    flat = [flattened(config) for config in configs]
    kinds = [tuple(one.get(name) for name in ("env", "algo", "preset")) for one in flat]
    result = []
    for index, own in enumerate(flat):
        alike = [other for other, kind in zip(flat, kinds, strict=True) if kind == kinds[index]]
        result.append(
            {
                name: value
                for name, value in own.items()
                if any(
                    other.get(name) != value
                    for other in (alike if _is_setting(name) else flat)
                    if other
                )
            }
        )
    return result


def flattened(config: dict[str, Any] | None) -> Settings:
    """A stored configuration as one level of names; nothing if it is not one."""
    found: Settings = {}
    for part, value in (config or {}).items():
        short = PARTS.get(part, part)
        if part in PARTS and isinstance(value, dict):
            found[short] = value.get("name")
            value = value.get("settings")
        found |= dict(leaves(value, short))
    return {_short(name): value for name, value in found.items() if name not in APART}


def settings_text(settings: Settings) -> str:
    """As a line: `limit=3.5 algo.target_kl=0.02`."""
    return " ".join(f"{name}={_text(value)}" for name, value in settings.items())


def leaves(value: Any, place: str = "") -> Iterator[tuple[str, Any]]:
    """Nested settings as pairs of a name, such as `training.seeds`, and its value."""
    if not isinstance(value, dict):
        yield place, value
        return
    for name, inner in value.items():
        yield from leaves(inner, f"{place}.{name}" if place else name)


def _short(name: str) -> str:
    """Parts of the constraint go by the names of their options."""
    short = {
        "constraint.kind": "constraint",
        "constraint.limit": "limit",
        "constraint.epsilon": "epsilon",
    }
    return short.get(name, name)


def _is_setting(name: str) -> bool:
    return "." in name


def _text(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value).replace(" ", "")[:40]
