"""How an environment behaves on fixed keys, as a few numbers: two that differ in them are not the same environment.

For each of the first steps with random actions, over all lanes: a weighted sum of the observations, the sums of rewards
and costs, and how many episodes are over. Settings tell most differences apart; this tells code that was changed.
"""

from typing import Any

import numpy as np

from canary.checking.probe import Probe

TOLERANCE = 1e-3  # of the largest number of its kind: machines round differently
KINDS = ("observation", "reward", "cost", "ends")


def fingerprint(record: Probe) -> dict[str, list[float]]:
    """Numbers by kind, one for each time; time 0 is the reset."""
    states = record.states
    seen = states.observation.astype(float)
    weights = np.cos(np.arange(seen.shape[-1]))  # so that swapped entries and signs show
    columns = {
        "observation": (seen * weights).sum((1, 2)),
        "reward": np.where(_moved(record), states.reward, 0).astype(float).sum(1),
        "cost": np.where(_moved(record), states.cost, 0).astype(float).sum(1),
        "ends": record.done.astype(float).sum(1),
    }
    return {kind: [float(f"{value:.7g}") for value in column] for kind, column in columns.items()}


def differences(stored: Any, found: dict[str, list[float]]) -> list[str]:
    """Which kinds of numbers differ, and from which step on; a stored fingerprint of another form says so."""
    try:
        columns = {kind: np.asarray(stored[kind], float) for kind in KINDS}
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


def _moved(record: Probe) -> np.ndarray:
    lanes = record.taken.shape[1]
    return np.concatenate([np.ones((1, lanes), bool), record.taken])
