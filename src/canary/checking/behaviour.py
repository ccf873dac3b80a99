"""What a record of random actions shows: mistakes of the environment, and a fingerprint of its
behaviour.

The fingerprint is a few numbers per step. Settings show most changes of an environment; the
fingerprint shows changed code.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from canary.checking.probe import Probe
from canary.checking.structure import Finding, error
from canary.environments.protocol import Environment, name_of_environment
from canary.numerics.running_statistics import LARGEST, sane

FIELDS = ("cost", "reward", "observation")
RULE = "write truncated = (time >= horizon) & ~terminated."
TOLERANCE = 1e-3  # of the largest number of its kind: machines round differently


def check_behaviour(environment: Environment, record: Probe) -> list[Finding]:
    """All that a record shows; sentences name the first step and lane."""
    name = name_of_environment(environment)
    found = [
        *_numbers(name, record),
        *_ends(environment.horizon, name, record),
        *_start(name, record),
    ]
    if not any(finding.level == "error" for finding in found):
        found += _oddities(record)
    return found


def same_again(first: Probe, second: Probe) -> Iterator[Finding]:
    """The same keys must give the same numbers."""
    records = ([getattr(each.states, field) for field in FIELDS] for each in (first, second))
    if not all(np.array_equal(*pair, equal_nan=True) for pair in zip(*records, strict=True)):
        text = (
            "The same seeds and actions gave other numbers the second time: the environment has "
            "randomness that does not come from the seed of its reset. A run that stops cannot "
            "be resumed exactly, and a certificate cannot be replayed."
        )
        yield Finding("warning", "step", text)


def _numbers(name: str, record: Probe) -> Iterator[Finding]:
    """Numbers that are not finite, and negative costs. A reset is step 0."""
    moved = np.concatenate([np.ones((1, record.taken.shape[1]), bool), record.taken])
    for field in FIELDS:
        values = getattr(record.states, field).reshape(*moved.shape, -1)
        bad = ~sane(values) & moved[..., None]
        if bad.any():
            step, lane, _ = where = tuple(np.argwhere(bad)[0])
            text = (
                f"The {field} of {name} is {values[where]} in step {step} of lane {lane}; it must "
                f"be finite, and at most {LARGEST:g}."
            )
            yield error(field, text)
    costs = record.after("cost")[record.taken]
    if (costs < 0).any():
        text = (
            f"The cost of {name} is negative in {(costs < 0).mean():.0%} of the steps (lowest "
            f"{costs.min():.4g}); a cost must be at least 0. If less is worse, change the sign."
        )
        yield error("cost", text)


def _ends(horizon: int, name: str, record: Probe) -> Iterator[Finding]:
    truncated, taken, cut = record.after("truncated"), record.taken, record.cut
    both, where = record.after("terminated") & truncated & taken, ""
    if both.any():
        step, lane = np.argwhere(both)[0]
        where = f"in step {step + 1} of lane {lane} of {name}"
    elif cut is not None and (cut.terminated & cut.truncated).any():
        where = f"in the last step before the horizon of {name}"
    if where:
        text = (
            f"Both terminated and truncated hold {where}; an episode that ends by itself is "
            f"terminated only: {RULE}"
        )
        yield error("truncated", text)
    if record.done[0].any():
        yield error("terminated", f"An episode of {name} is over right after reset().")
    if len(taken) > horizon and taken[horizon].any():
        text = f"An episode of {name} is not over after {horizon} steps, its horizon; {RULE}"
        yield error("truncated", text)
    early = truncated & taken & (np.arange(1, len(taken) + 1)[:, None] < horizon)
    if early.any():
        text = (
            f"An episode of {name} is truncated after {np.argwhere(early)[0][0] + 1} steps, before "
            f"its horizon of {horizon}; state the smaller horizon, or call it terminated if the "
            "episode ends by itself."
        )
        yield Finding("warning", "truncated", text)
    if cut is not None and not np.all(cut.terminated | cut.truncated):
        text = (
            "An episode whose time is set to horizon - 1 is not over after one step. Training starts "
            "first episodes at random times, so `truncated` should be time >= horizon; otherwise "
            "say --set training.stagger=false."
        )
        yield Finding("warning", "truncated", text)


def _start(name: str, record: Probe) -> Iterator[Finding]:
    """The clock counts the steps of the episode, and a cost belongs to a step."""
    steps = np.concatenate([np.zeros((1, record.taken.shape[1]), int), record.taken.cumsum(0)])
    wrong = record.states.time != steps
    if wrong.any():
        step, lane = np.argwhere(wrong)[0]
        text = (
            f"The time of {name} is {record.states.time[step, lane]} after {steps[step, lane]} "
            "steps; it must count the steps of the episode."
        )
        yield error("time", text)
    costs = record.states.cost[0]
    if costs.any():
        text = (
            f"The cost of {name} after reset() is {costs[costs != 0][0]:.4g}; it must be 0, because "
            "only the costs of steps count. Add it to the cost of the first step."
        )
        yield error("cost", text)


def _oddities(record: Probe) -> Iterator[Finding]:
    costs = record.after("cost")[record.taken]
    if not costs.any():
        text = f"The cost is 0 in all {len(costs)} random steps: any limit holds so far."
        yield Finding("warning", "cost", text)
    first, second = record.states.observation[:2]
    if len(first) > 1 and (first == first[0]).all():
        is_random = not (second == second[0]).all()
        moves = "the steps are random" if is_random else "nothing else is known to be random"
        text = f"Every episode starts with the same observation; {moves}."
        yield Finding("note", "reset", text)


def fingerprint(record: Probe) -> dict[str, list[float]]:
    """Numbers by kind, one for each time, over all lanes; time 0 is the reset."""
    states = record.states
    moved = np.concatenate([np.ones((1, record.taken.shape[1]), bool), record.taken])

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


def behaviour_differences(stored: Any, found: dict[str, list[float]]) -> list[str]:
    """Which kinds of numbers differ between two fingerprints, and from which step on."""
    different = []
    for kind, now in found.items():
        try:
            before = np.asarray(stored[kind], float)
        except (KeyError, TypeError, ValueError):
            return ["the stored behaviour cannot be read"]
        common = min(len(before), len(now))
        before, after = before[:common], np.asarray(now[:common], float)
        scale = max(np.abs(before).max(initial=0), np.abs(after).max(initial=0))
        apart = np.abs(before - after) > TOLERANCE * scale
        if apart.any():
            different.append(f"the {kind} differs from step {int(np.argmax(apart))} on")
    return different
