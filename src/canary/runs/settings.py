"""Differences between the settings of stored configurations. No JAX here."""

from collections.abc import Iterator, Sequence
from typing import Any

PARTS = {"environment": "env", "algorithm": "algo"}
SHORT = {
    "constraint.kind": "constraint",
    "constraint.limit": "limit",
    "constraint.epsilon": "epsilon",
}
APART = {"training.seeds"}  # shown in a column of its own
Settings = dict[str, Any]


def differing(configs: Sequence[dict[str, Any] | None]) -> list[Settings]:
    """For each run the settings that differ among the runs, by the names of `--set`:
    {"algo.dead_zone": 0.6}.

    Settings of environment, algorithm and training are compared only among runs with the same
    environment, algorithm and preset, which explain the other differences.
    """
    flat = [flattened(config) for config in configs]
    kinds = [tuple(one.get(name) for name in ("env", "algo", "preset")) for one in flat]
    pairs = list(zip(flat, kinds, strict=True))

    def varies(name: str, value: Any, kind: tuple) -> bool:
        return any(
            other.get(name) != value
            for other, its_kind in pairs
            if other and (its_kind == kind or "." not in name)
        )

    return [
        {name: value for name, value in own.items() if varies(name, value, kind)}
        for own, kind in pairs
    ]


def flattened(config: dict[str, Any] | None) -> Settings:
    """A stored configuration with one level of names; empty if it is not a configuration."""
    found: Settings = {}
    for part, value in (config or {}).items():
        short = PARTS.get(part, part)
        if part in PARTS and isinstance(value, dict):
            found[short] = value.get("name")
            value = value.get("settings")
        found |= dict(leaves(value, short))
    return {SHORT.get(name, name): value for name, value in found.items() if name not in APART}


def settings_text(settings: Settings) -> str:
    """Settings as a line: `limit=3.5 algo.dead_zone=0.6`."""
    return " ".join(
        f"{name}={f'{value:g}' if isinstance(value, float) else str(value).replace(' ', '')[:40]}"
        for name, value in settings.items()
    )


def leaves(value: Any, place: str = "") -> Iterator[tuple[str, Any]]:
    """Nested settings as pairs of a name, such as `training.seeds`, and its value."""
    if not isinstance(value, dict):
        yield place, value
        return
    for name, inner in value.items():
        yield from leaves(inner, f"{place}.{name}" if place else name)


def differences(original: Any, found: Any) -> list[str]:
    """Changes of nested settings, in words: `constraint.limit is 50.0 and was 5.5`."""
    before, after = dict(leaves(original)), dict(leaves(found))
    texts = []
    for name in dict.fromkeys((*before, *after)):
        if name not in before or name not in after:
            texts.append(f"{name} is {'new' if name in after else 'missing'}")
        elif type(before[name]) is not type(after[name]) or before[name] != after[name]:
            texts.append(f"{name or 'it'} is {after[name]!r:.60} and was {before[name]!r:.60}")
    return texts
