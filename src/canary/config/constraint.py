"""The constraint of a run: completed from what was said and what the environment suggests, and matched with the algorithm."""

from collections.abc import Mapping
from typing import Any

from canary.algorithms import ALGORITHMS
from canary.constraints import CONSTRAINTS, Chance, Constraint
from canary.errors import CanaryError

PARTS = ("kind", "limit", "epsilon")


def complete(
    said: Constraint | Mapping[str, Any] | None, suggested: Chance | None, environment: str
) -> Constraint:
    """The constraint that was said: a whole one, some of `kind`, `limit` and `epsilon`, or nothing.

    What was left out comes from the environment's suggestion, if it has one.
    """
    if isinstance(said, tuple(CONSTRAINTS.values())):
        return said
    if said is not None and not isinstance(said, Mapping):
        raise CanaryError(f"The constraint must be {_choices()}, not {said!r}.")
    parts = {name: value for name, value in (said or {}).items() if value is not None}
    kind = parts.get("kind", "chance")
    if kind not in CONSTRAINTS or not set(parts) <= set(PARTS):
        raise CanaryError(f"The constraint must be one of {', '.join(CONSTRAINTS)}, not {kind!r}.")
    if kind == "mean" and "epsilon" in parts:
        raise CanaryError("A constraint on the mean cost has no epsilon; leave it out.")
    needed = ("limit",) if kind == "mean" else ("limit", "epsilon")
    for name in needed:
        if name not in parts and suggested is None:
            raise CanaryError(
                f"{environment} has no default constraint: say the {name} (--{name}), or pass constraint={_choices()}."
            )
        parts.setdefault(name, getattr(suggested, name, None))
    return CONSTRAINTS[kind](**{name: parts[name] for name in needed})


def check_served(algorithm: str, constraint: Constraint) -> None:
    """Raise a sentence if the algorithm cannot train under a constraint of this kind."""
    serves = ALGORITHMS[algorithm].serves
    if constraint.kind not in serves:
        others = [
            name for name, entry in ALGORITHMS.items() if constraint.kind in entry.serves and name != "ppo"
        ]
        raise CanaryError(
            f"{algorithm} cannot train under a {constraint.kind} constraint, only under {' or '.join(serves)}; for "
            f"{constraint.text} take {' or '.join(others)} (docs/constraints.md has the table)."
        )


def _choices() -> str:
    return (
        "canary.Chance(limit=..., epsilon=...), canary.Mean(limit=...) or canary.CVaR(limit=..., epsilon=...)"
    )
