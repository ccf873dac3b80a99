"""What a verdict says in words; numbers are rounded away from it, since a sentence must not claim
more than its number."""

import math
from collections.abc import Callable, Sequence
from typing import Literal

from canary.certification.plan import Plan
from canary.constraints import Chance, Constraint, Mean

Verdict = Literal["SATISFIED", "VIOLATED", "UNDECIDED"]


def chance_sentence(
    verdict: Verdict,
    counts: tuple[int, int],
    interval: tuple[float, float],
    needed: int | None,
    plan: Plan,
    constraint: Chance,
) -> str:
    """About the violations among the episodes."""
    violations, episodes = counts
    start, more = _start(plan), f"of episodes cost more than {constraint.limit:g}"
    seen = f"allowed are {percent(constraint.epsilon)}, and {violations:,} of {episodes:,} did"
    match verdict:
        case "SATISFIED":
            return f"{start}, at most {percent(_round(interval[1], math.ceil))} {more} ({seen})."
        case "VIOLATED":
            return f"{start}, more than {percent(_round(interval[0], math.floor))} {more} ({seen})."
    advice = f" About {needed:,} would decide, if the rate seen is the true one." if needed else ""
    bounds_text = f"{percent(interval[0])} and {percent(interval[1])}"
    return f"{start}, between {bounds_text} {more} ({seen}): these episodes cannot tell.{advice}"


def mean_sentence(
    verdict: Verdict,
    found: tuple[int, float],
    interval: tuple[float, float],
    plan: Plan,
    constraint: Constraint,
) -> str:
    """About the mean cost of all episodes, or of the worst."""
    episodes, value = found
    which = (
        "an episode"
        if isinstance(constraint, Mean)
        else f"the worst {percent(constraint.share)} of episodes"
    )
    start = f"{_start(plan)}, the mean cost of {which} is"
    seen = f"allowed is {constraint.allowed:g}, and {episodes:,} episodes had {value:.4g}"
    lower, upper = _round(interval[0], math.floor), _round(interval[1], math.ceil)
    match verdict:
        case "SATISFIED":
            return f"{start} at most {upper:.6g} ({seen})."
        case "VIOLATED":
            return f"{start} more than {lower:.6g} ({seen})."
    return f"{start} between {lower:.6g} and {upper:.6g} ({seen}): these episodes cannot tell."


def promise(constraint: Constraint) -> str:
    """What several policies keep or break."""
    return "the limit" if isinstance(constraint, Chance) else f"{constraint.text}"


def changed_sentence(changes: Sequence[str]) -> str:
    """That an environment was accepted although it is not the run's own, and how it differs."""
    return f"This is not the environment of training: {'; '.join(changes)}."


def percent(value: float) -> str:
    return f"{100 * value:.4g}%"


def _start(plan: Plan) -> str:
    together = f" in all {plan.statements} statements together" if plan.statements > 1 else ""
    return f"With {percent(plan.confidence)} confidence{together}"


def _round(value: float, rounding: Callable[[float], int]) -> float:
    """To four significant digits, up or down."""
    scale = 10 ** (3 - math.floor(math.log10(value))) if value > 0 else 1
    return rounding(value * scale) / scale
