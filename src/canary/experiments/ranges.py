"""Which numbers make sense as settings: a mistake is named before anything is computed with it.

A setting of one name means the same in every algorithm. No number of an algorithm may be negative; what must
be more than that is listed here.
"""

import dataclasses
from typing import Any

from canary.errors import CanaryError

POSITIVE = {
    *("hidden", "window", "window_batches", "target_kl", "target_kl_end", "cg_iterations", "backtracks"),
    *("shrink", "learning_rate", "epochs"),
    *("minibatches", "gradient_clip", "ratio_clip", "minibatch_size", "quantiles", "samples", "huber"),
    *("calibration_episodes", "calibration_confidence", "tolerated_loss"),
    *("multiplier_cap", "cvar_clip_ratio", "reward_discount", "cost_discount", "value_clip"),
}
AT_MOST = {
    "reward_discount": 1,
    "cost_discount": 1,
    "gae_lambda": 1,
    "cost_gae_lambda": 1,
    "shrink": 1,
    "calibration_confidence": 1,
    "hidden": 2**16,
}
LARGEST_INTEGER = 2**31 - 1  # device integers have 32 bits


def check_algorithm(settings: Any, batch: int) -> None:
    """Raise a sentence if a number of an algorithm's settings is out of its range."""
    for where, name, number in _numbers(settings, "algo"):
        if number < 0 or (number == 0 and name in POSITIVE):
            least = "positive" if name in POSITIVE else "at least 0"
            raise CanaryError(f"{where} must be {least}, not {number}.")
        if number > AT_MOST.get(name, number):
            raise CanaryError(f"{where} must be at most {AT_MOST[name]}, not {number}.")
        if name == "minibatches" and number > batch:
            raise CanaryError(f"{where} ({number}) is more than the {batch} steps of a batch; take fewer.")


def check_integers(settings: Any, where: str) -> None:
    """Raise a sentence if a whole number does not fit where it is computed with."""
    for place, _, number in _numbers(settings, where):
        if isinstance(number, int) and abs(number) > LARGEST_INTEGER:
            raise CanaryError(f"{place} must be at most {LARGEST_INTEGER}, not {number}.")


def _numbers(settings: Any, where: str) -> list[tuple[str, str, int | float]]:
    """(place, name, number) of every number in nested settings, those in tuples included."""
    found: list[tuple[str, str, int | float]] = []
    for field in dataclasses.fields(settings) if dataclasses.is_dataclass(settings) else ():
        value, place = getattr(settings, field.name), f"{where}.{field.name}"
        if dataclasses.is_dataclass(value):
            found += _numbers(value, place)
        items = value if isinstance(value, tuple) else (value,)
        found += [
            (place, field.name, x) for x in items if isinstance(x, int | float) and not isinstance(x, bool)
        ]
    return found
