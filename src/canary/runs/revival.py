"""Bring back the episodes that were under way at a checkpoint, where the environment lives outside the state."""

from typing import Protocol, runtime_checkable

import jax
import numpy as np
from jaxtyping import Bool

from canary.environments.protocol import EnvironmentState
from canary.rollout import Lane, select, start_lanes
from canary.training import Trainer, TrainingState


@runtime_checkable
class Revivable(Protocol):
    """An environment whose stored states have to be brought back to life."""

    def revive(self, state: EnvironmentState) -> Bool[np.ndarray, "lane"]: ...


def revive(trainer: Trainer, states: TrainingState) -> tuple[TrainingState, list[str]]:
    """States (stacked along a first axis of seeds) that can go on, and a sentence about what was lost, if anything."""
    environment = trainer.environment
    if not isinstance(environment, Revivable):
        return states, []
    seeds = states.terms.iteration.shape[0]
    parts, lost = [], 0
    for seed in range(seeds):
        lanes: Lane = jax.tree.map(lambda leaf, i=seed: leaf[i], states.lanes)
        alive = environment.revive(lanes.environment)
        if not alive.all():
            lost += int((~alive).sum())
            key = jax.random.fold_in(states.key[seed], states.terms.iteration[seed])
            fresh = start_lanes(trainer.environment, len(alive), key, stagger=False)
            lanes = select(jax.numpy.asarray(~alive), fresh, lanes)
        parts.append(lanes)
    if not lost:
        return states, []
    lanes = jax.tree.map(lambda *leaves: jax.numpy.stack(leaves), *parts)
    name = getattr(environment, "name", type(environment).__name__)
    note = (
        f"{lost} of {seeds * trainer.environments} episodes of {name} could not be brought back to where they were: "
        "the same seed and actions led to other observations. New ones start, so this run goes on as well, but not "
        "with the numbers that it would have had without the stop."
    )
    return TrainingState(states.learner, lanes, states.statistics, states.window, states.terms, states.key), [
        note
    ]
