"""Mistakes of an environment in a record of random actions, and a fingerprint of its behaviour.

The fingerprint is a few numbers per step. Settings show most changes of an environment; the
fingerprint shows changed code.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from canary.checking.probe import Probe
from canary.environments.protocol import Environment, name_of_environment
from canary.errors import CanaryError
from canary.numerics.running_statistics import LARGEST, sane

FIELDS = ("cost", "reward", "observation")
RULE = "write truncated = (time >= horizon) & ~terminated."
TOLERANCE = 1e-3  # of the largest number of its kind: machines round differently


@dataclass(frozen=True)
class Finding:
    """An error makes training wrong or impossible; a warning is likely a mistake; a note is worth
    knowing."""

    level: Literal["error", "warning", "note"]
    field: str
    text: str


def raise_first_error(findings: Sequence[Finding]) -> None:
    """Raise the sentence of the first error, and say if there are more."""
    errors = [finding.text for finding in findings if finding.level == "error"]
    if errors:
        more = f" (and {len(errors) - 1} more: `canary check-env` lists them)" if errors[1:] else ""
        raise CanaryError(f"{errors[0].removesuffix('.')}{more}.")


def check_behaviour(environment: Environment, record: Probe) -> list[Finding]:
    """All that a record shows; sentences name the first step and lane."""
    mistakes = _mistakes(environment.horizon, name_of_environment(environment), record)
    return [Finding("error", *each) for each in mistakes] or [*_oddities(environment, record)]


def same_again(first: Probe, second: Probe) -> Iterator[Finding]:
    """The same keys must give the same numbers, as far as both records go."""
    count = min(len(first.taken), len(second.taken)) + 1
    records = ([getattr(each.states, f)[:count] for f in FIELDS] for each in (first, second))
    if not all(np.array_equal(*pair, equal_nan=True) for pair in zip(*records, strict=True)):
        text = (
            "The same seeds and actions gave other numbers the second time: the environment has "
            "randomness that does not come from the seed of its reset. A run that stops cannot "
            "be resumed exactly, and a certificate cannot be replayed."
        )
        yield Finding("warning", "step", text)


def _mistakes(horizon: int, name: str, record: Probe) -> Iterator[tuple[str, str]]:
    """Fields and sentences. A reset is step 0."""
    taken, cut = record.taken, record.cut
    moved = _with_resets(taken)
    for field in FIELDS:
        values = getattr(record.states, field).reshape(*moved.shape, -1)
        for where in np.argwhere(~sane(values) & moved[..., None])[:1]:
            yield (
                field,
                (
                    f"The {field} of {name} is {values[tuple(where)]} in step {where[0]} of lane "
                    f"{where[1]}; it must be finite, and at most {LARGEST:g}."
                ),
            )
    costs, at_reset = record.after("cost")[taken], record.states.cost[0]
    if (costs < 0).any():
        yield (
            "cost",
            (
                f"The cost of {name} is negative in {(costs < 0).mean():.0%} of the steps (lowest "
                f"{costs.min():.4g}); a cost must be at least 0. If less is worse, change the sign."
            ),
        )
    if at_reset.any():
        yield (
            "cost",
            (
                f"The cost of {name} after reset() is {at_reset[at_reset != 0][0]:.4g}; it must be 0, "
                "because only the costs of steps count. Add it to the cost of the first step."
            ),
        )
    both = np.argwhere(record.after("terminated") & record.after("truncated") & taken)
    if len(both) or (cut is not None and (cut.terminated & cut.truncated).any()):
        where = f"the last step before the horizon of {name}"
        if len(both):
            where = f"step {both[0][0] + 1} of lane {both[0][1]} of {name}"
        yield (
            "truncated",
            (
                f"Both terminated and truncated hold in {where}; an episode that ends by itself is "
                f"terminated only: {RULE}"
            ),
        )
    if record.done[0].any():
        yield "terminated", f"An episode of {name} is over right after reset()."
    if len(taken) > horizon and taken[horizon].any():
        text = f"An episode of {name} is not over after {horizon} steps, its horizon; {RULE}"
        yield "truncated", text
    steps = np.concatenate([np.zeros_like(taken[:1], int), taken.cumsum(0)])
    for where in map(tuple, np.argwhere(record.states.time != steps)[:1]):
        yield (
            "time",
            (
                f"The time of {name} is {record.states.time[where]} after {steps[where]} steps; it must "
                "count the steps of the episode."
            ),
        )


def _oddities(environment: Environment, record: Probe) -> Iterator[Finding]:
    """What is possible but probably not meant."""
    truncated = record.after("truncated") & record.taken
    early = np.argwhere(truncated[: environment.horizon - 1])
    if len(early):
        text = (
            f"An episode of {name_of_environment(environment)} is truncated after "
            f"{early[0][0] + 1} steps, before its horizon of {environment.horizon}; state the "
            "smaller horizon, or call it terminated if the episode ends by itself."
        )
        yield Finding("warning", "truncated", text)
    if record.cut is not None and not np.all(record.cut.terminated | record.cut.truncated):
        text = (
            "An episode whose time is set to horizon - 1 is not over after one step. Training starts "
            "first episodes at random times, so `truncated` should be time >= horizon; otherwise "
            "use --set training.stagger=false."
        )
        yield Finding("warning", "truncated", text)
    first, second = record.states.observation[:2]
    if len(first) > 1 and (first == first[0]).all():
        is_random = not (second == second[0]).all()
        moves = "the steps are random" if is_random else "nothing else is known to be random"
        text = f"Every episode starts with the same observation; {moves}."
        yield Finding("note", "reset", text)


def _with_resets(taken: np.ndarray) -> np.ndarray:
    return np.concatenate([np.ones_like(taken[:1]), taken])


def fingerprint(record: Probe) -> dict[str, list[float]]:
    """Numbers by kind, one for each time, over all lanes; time 0 is the reset."""
    states, moved = record.states, _with_resets(record.taken)

    def over_entries(values: Any) -> np.ndarray:
        """A weighted sum, so that swapped entries and signs show."""
        values = values.astype(float).reshape(*moved.shape, -1)
        return (values * np.cos(np.arange(values.shape[-1]))).sum(-1)

    columns = {
        "observation": over_entries(states.observation).sum(1),
        "reward": np.where(moved, states.reward, 0).astype(float).sum(1),
        "cost": np.where(moved, over_entries(states.cost), 0).sum(1),
        "ends": record.done.astype(float).sum(1),
    }
    return {kind: [float(f"{value:.7g}") for value in column] for kind, column in columns.items()}


def behaviour_differences(
    stored: dict[str, list[float]], found: dict[str, list[float]]
) -> list[str]:
    """Which kinds of numbers differ between two fingerprints, and from which step on."""
    different = []
    for kind, now in found.items():
        common = min(len(stored[kind]), len(now))
        before, after = np.array(stored[kind][:common]), np.array(now[:common])
        scale = max(np.abs(before).max(), np.abs(after).max())
        apart = np.abs(before - after) > TOLERANCE * scale
        if apart.any():
            different.append(f"the {kind} differs from step {int(np.argmax(apart))} on")
    return different
