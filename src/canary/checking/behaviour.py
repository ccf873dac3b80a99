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
from canary.numerics.sanity import LARGEST, sane

FIELDS = ("cost", "reward", "observation")
RULE = "write truncated = (time >= horizon) & ~terminated."
TOLERANCE = 1e-3  # of the largest number of its kind: machines round differently


def check_behaviour(environment: Environment, record: Probe) -> list[Finding]:
    """All that a record shows; sentences name the first step and lane."""
    name = name_of_environment(environment)
    found = [
        *_not_finite(name, record),
        *_negative(name, record),
        *_flags(environment, name, record),
        *_start(name, record),
    ]
    if not any(finding.level == "error" for finding in found):
        found += _oddities(record)
    return found


def check_cut(record: Probe) -> Iterator[Finding]:
    """An episode must end when its `time` reaches the horizon, wherever its clock started."""
    if record.cut is not None and not np.all(record.cut.terminated | record.cut.truncated):
        yield Finding(
            "warning",
            "truncated",
            "An episode whose time is set to horizon - 1 is not over after one step. Training "
            "starts first episodes at random times, so `truncated` should be time >= horizon; else "
            "say --set training.stagger=false.",
        )


def same_again(first: Probe, second: Probe) -> Iterator[Finding]:
    """The same keys must give the same numbers; the second record may be shorter."""
    length = len(second.states.time)
    pairs: list[Any] = [
        (getattr(first.states, field)[:length], getattr(second.states, field)) for field in FIELDS
    ]
    if not all(np.array_equal(one, other, equal_nan=True) for one, other in pairs):
        yield Finding(
            "warning",
            "step",
            "The same seeds and actions gave other numbers the second time: the environment has "
            "randomness that does not come from the seed of its reset. A run that stops cannot be "
            "resumed exactly, and a certificate cannot be replayed.",
        )


def _not_finite(name: str, record: Probe) -> Iterator[Finding]:
    first = record.states.observation[0]
    if not sane(first).all():
        lane = int(np.argwhere(~sane(first))[0][0])
        yield error("observation", f"The first observation of {name} is not finite (lane {lane}).")
    for field in FIELDS:
        values = record.after(field)
        bad = ~sane(values).reshape(*values.shape[:2], -1).all(-1) & record.taken
        if bad.any():
            step, lane = np.argwhere(bad)[0]
            example = np.ravel(values[step, lane])[~sane(np.ravel(values[step, lane]))][0]
            yield error(
                field,
                f"The {field} of {name} is {example} in step {step + 1} of lane {lane}; it must be "
                f"finite, and at most {LARGEST:g} ({int(bad.sum())} of {int(record.taken.sum())} "
                "steps are not).",
            )


def _negative(name: str, record: Probe) -> Iterator[Finding]:
    costs = record.after("cost")[record.taken]
    if (negative := costs < 0).any():
        yield error(
            "cost",
            f"The cost of {name} is negative in {negative.mean():.0%} of the steps (lowest "
            f"{costs.min():.4g}); a cost must be at least 0. If less is worse, change the sign.",
        )


def _flags(environment: Environment, name: str, record: Probe) -> Iterator[Finding]:
    truncated, taken = record.after("truncated"), record.taken
    both, where = record.after("terminated") & truncated & taken, ""
    if both.any():
        step, lane = np.argwhere(both)[0]
        where = f"in step {step + 1} of lane {lane} of {name}"
    elif record.cut is not None and (record.cut.terminated & record.cut.truncated).any():
        where = f"in the last step before the horizon of {name}"
    if where:
        yield error(
            "truncated",
            f"Both terminated and truncated hold {where}; an episode that ends by itself is "
            f"terminated only: {RULE}",
        )
    if record.done[0].any():
        yield error("terminated", f"An episode of {name} is over right after reset().")
    horizon = environment.horizon
    if len(taken) > horizon and taken[horizon].any():
        lane = int(np.flatnonzero(taken[horizon])[0])
        yield error(
            "truncated",
            f"The episode of lane {lane} of {name} is not over after {horizon} steps, its horizon; "
            f"{RULE}",
        )
    early = truncated & taken & (np.arange(1, len(taken) + 1)[:, None] < horizon)
    if early.any():
        step, lane = np.argwhere(early)[0]
        yield Finding(
            "warning",
            "truncated",
            f"Lane {lane} of {name} is truncated after {step + 1} steps, before its horizon of "
            f"{horizon}; state the smaller horizon, or call it terminated if the episode ends by "
            "itself.",
        )


def _start(name: str, record: Probe) -> Iterator[Finding]:
    """The clock counts the steps of the episode, and a cost belongs to a step."""
    lanes = record.taken.shape[1]
    expected = np.concatenate([np.zeros((1, lanes), int), record.taken.cumsum(0)])
    wrong = record.states.time != expected
    if wrong.any():
        step, lane = np.argwhere(wrong)[0]
        found, right = int(record.states.time[step, lane]), int(expected[step, lane])
        yield error(
            "time",
            f"The time of {name} is {found} after {right} steps; it must count the steps of the "
            "episode.",
        )
    costs = record.states.cost[0]
    if costs.any():
        yield error(
            "cost",
            f"The cost of {name} after reset() is {costs[costs != 0][0]:.4g}; it must be 0, because "
            "only the costs of steps count. Add it to the cost of the first step.",
        )


def _oddities(record: Probe) -> Iterator[Finding]:
    costs, rewards = record.after("cost")[record.taken], record.states.reward[0]
    if not costs.any():
        text = f"The cost is 0 in all {len(costs)} random steps: any limit holds so far."
        yield Finding("warning", "cost", text)
    if rewards.any():
        text = f"The reward after reset() is {rewards[rewards != 0][0]:.4g}; it is ignored."
        yield Finding("warning", "reward", text)
    if costs.size and (largest := np.abs(costs).max()) > 1e6:
        text = f"Costs reach {largest:.3g} in a step; sums in float32 lose small costs beside it."
        yield Finding("note", "cost", text)
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
    try:
        columns = {kind: np.asarray(stored[kind], float) for kind in found}
    except (KeyError, TypeError, ValueError):
        return ["the stored behaviour cannot be read"]
    different = []
    for kind, before in columns.items():
        after = np.asarray(found[kind], float)
        common = min(len(before), len(after))
        before, after = before[:common], after[:common]
        scale = max(np.abs(before).max(initial=0), np.abs(after).max(initial=0))
        apart = np.abs(before - after) > TOLERANCE * scale
        if apart.any():
            different.append(f"the {kind} differs from step {int(np.argmax(apart))} on")
    return different
