"""What a record of random actions shows: numbers that are not finite, flags and clocks that
disagree, odd costs."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from canary.checking.findings import Finding, error, note, warning
from canary.checking.probe import Probe
from canary.environments.protocol import Environment
from canary.environments.settings import name_of_environment
from canary.numerics.sanity import LARGEST, sane

FIELDS = ("cost", "reward", "observation")


def check_behaviour(environment: Environment, record: Probe) -> list[Finding]:
    """All that a record shows; sentences name the first step and lane."""
    name = name_of_environment(environment)
    found = [*_not_finite(name, record), *_flags(environment, name, record), *_clock(name, record)]
    if not any(finding.level == "error" for finding in found):
        found += [*_costs(record), *_starts(record)]
    return found


def check_cut(record: Probe) -> Iterator[Finding]:
    """An episode is cut when its `time` reaches the horizon, also if training started it in
    mid-clock."""
    if record.cut is not None and not np.all(record.cut.terminated | record.cut.truncated):
        yield warning(
            "truncated",
            "An episode whose time is set to horizon - 1 is not over after one step. Training "
            "starts first episodes at random times, so `truncated` should be time >= horizon; else "
            "say --set training.stagger=false.",
        )


def same_again(first: Probe, second: Probe) -> Iterator[Finding]:
    """The same keys must give the same numbers."""
    pairs: list[Any] = [(first.after(field), second.after(field)) for field in FIELDS]
    pairs.append((first.states.observation[0], second.states.observation[0]))
    if not all(np.array_equal(one, other, equal_nan=True) for one, other in pairs):
        yield warning(
            "step",
            "The same seeds and actions gave other numbers the second time: the environment has "
            "randomness that does not come from the seed of its reset. A run that stops cannot go "
            "on exactly, nor a certificate be replayed.",
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


def _flags(environment: Environment, name: str, record: Probe) -> Iterator[Finding]:
    terminated, truncated, taken = (
        record.after("terminated"),
        record.after("truncated"),
        record.taken,
    )
    rule = "write truncated = (time >= horizon) & ~terminated."
    if (both := terminated & truncated & taken).any():
        step, lane = np.argwhere(both)[0]
        yield error(
            "truncated",
            f"Both terminated and truncated hold in step {step + 1} of lane {lane} of {name}; an "
            f"episode that ends by itself is terminated only: {rule}",
        )
    elif record.cut is not None and (both := record.cut.terminated & record.cut.truncated).any():
        yield error(
            "truncated",
            f"Both terminated and truncated hold in the last step before the horizon of {name} "
            f"(lane {int(np.argmax(both))}); an episode that ends by itself is terminated only: "
            f"{rule}",
        )
    if record.done[0].any():
        yield error("terminated", f"An episode of {name} is over right after reset().")
    horizon = environment.horizon
    if len(taken) > horizon and taken[horizon].any():
        lane = int(np.flatnonzero(taken[horizon])[0])
        yield error(
            "truncated",
            f"The episode of lane {lane} of {name} is not over after {horizon} steps, its horizon; "
            f"{rule}",
        )
    early = truncated & taken & (np.arange(1, len(taken) + 1)[:, None] < horizon)
    if early.any():
        step, lane = np.argwhere(early)[0]
        yield warning(
            "truncated",
            f"Lane {lane} of {name} is truncated after {step + 1} steps, before its horizon of "
            f"{horizon}; state the "
            "smaller horizon, or call it terminated if the episode ends by itself.",
        )


def _clock(name: str, record: Probe) -> Iterator[Finding]:
    expected = np.concatenate([np.zeros((1, record.taken.shape[1]), int), record.taken.cumsum(0)])
    wrong = record.states.time != expected
    if wrong.any():
        step, lane = np.argwhere(wrong)[0]
        found, right = int(record.states.time[step, lane]), int(expected[step, lane])
        yield error(
            "time",
            f"The time of {name} is {found} after {right} steps; it must count the steps of the "
            "episode.",
        )


def _costs(record: Probe) -> Iterator[Finding]:
    costs = record.after("cost")[record.taken]
    if (negative := costs < 0).any():
        yield warning(
            "cost",
            f"The cost is negative in {negative.mean():.0%} of the steps (lowest "
            f"{costs.min():.4g}). The limit bounds "
            "its sum from above; if less is worse, change the sign.",
        )
    if not costs.any():
        yield warning(
            "cost", f"The cost is 0 in all {len(costs)} random steps: any limit holds so far."
        )
    for field in ("cost", "reward"):
        first = getattr(record.states, field)[0]
        if first.any():
            yield warning(
                field, f"The {field} after reset() is {first[first != 0][0]:.4g}; it should be 0."
            )
    if costs.size and np.abs(costs).max() > 1e6:
        largest = np.abs(costs).max()
        yield note(
            "cost",
            f"Costs reach {largest:.3g} in a step; sums in float32 lose small costs beside it.",
        )


def _starts(record: Probe) -> Iterator[Finding]:
    first, second = record.states.observation[:2]
    if len(first) > 1 and (first == first[0]).all():
        is_random = not (second == second[0]).all()
        moves = "the steps are random" if is_random else "nothing else is known to be random"
        yield note("reset", f"Every episode starts with the same observation; {moves}.")
